//! What every figure, number and table of the page is made from.

use crate::lab::{RunLine, figures::Pairs};

/// What figures are made from.
pub(super) struct Inputs {
    /// Every run.
    pub(super) lines: Vec<RunLine>,
    /// Batch times of the smallest model's engine, observed and predicted by eq. 12, seconds.
    pub(super) batches: Pairs,
}
