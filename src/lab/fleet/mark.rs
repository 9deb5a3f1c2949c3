//! The counters of engines and routers at one moment.

use super::{instance::Instance, mouth::Mouth};
use crate::engine::Counters;

/// Every counter at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    pub(super) instances: Vec<Counters>,
    pub(super) decisions: u64,
    pub(super) estimates: u64,
}

impl Mark {
    /// Reads them.
    pub(super) fn of(instances: &[Instance], mouths: &[Mouth]) -> Self {
        Self {
            instances: instances.iter().map(Instance::counters).collect(),
            decisions: mouths.iter().map(|mouth| mouth.decisions).sum(),
            estimates: mouths.iter().map(Mouth::estimates).sum(),
        }
    }
}
