//! Fits of what estimates rest on: the batch time of eq. 12 and the prefill throughputs.
//!
//! A fit is relative and non-negative: a step of 8 ms counts as much as one of 800 ms, and no work
//! makes a batch shorter (`batch_time.rs`); throughputs are ratios of sums (`prefill.rs`).

mod batch_time;
mod prefill;

pub use batch_time::{Fit, FitOptions, fit};
pub use prefill::{effective_prefill_tokens_per_s, peak_prefill_tokens_per_s};

use crate::engine::BatchWork;

/// One observed batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// What it did.
    pub work: BatchWork,
    /// How long it took, seconds.
    pub duration_s: f64,
}

/// Why a fit cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum CalibrateError {
    /// Fewer samples than coefficients.
    #[error("{samples} samples cannot fix {coefficients} coefficients; record more steps")]
    TooFewSamples {
        /// Samples given.
        samples: usize,
        /// Coefficients to fit.
        coefficients: usize,
    },
    /// A duration that no batch has.
    #[error("sample {index} lasts {duration_s} s; durations must be finite and above 0")]
    BadDuration {
        /// Position of the sample.
        index: usize,
        /// Its duration, seconds.
        duration_s: f64,
    },
    /// Nothing non-negative fits.
    #[error("no non-negative coefficients fit the samples; check that their work is not all zero")]
    NoFit,
}
