//! How long until the first token: estimators of a query on an instance.
//!
//! To add one: a file with its [`Estimator`] and an [`EstimatorEntry`], one line in [`ESTIMATORS`].
//! An estimator that cannot judge a view hands it on to a coarser one: a replay ([`bea`]) needs a
//! state and coefficients, a ratio ([`prefill_throughput`]) a throughput, a [`guess`] nothing.

pub mod bea;
pub mod guess;
pub mod lines;
pub mod prefill_throughput;
pub mod replay;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{Estimate, Horizon, InstanceView, QueryLoad, Timestamp};

/// Estimates a query on an instance. Estimating changes nothing.
pub trait Estimator: Send + Sync {
    /// Returns the registered name.
    fn name(&self) -> &'static str;

    /// Estimates `load` on `view` at `now`, up to `horizon`.
    fn estimate(&self, load: QueryLoad, view: &InstanceView, now: Timestamp, horizon: Horizon) -> Estimate;

    /// Returns a TTFT that no estimate of `load` on `view` falls below, seconds, at next to no cost; 0 where
    /// nothing is known.
    fn least_ttft_s(&self, _load: QueryLoad, _view: &InstanceView) -> f64 {
        0.0
    }
}

/// The estimators' options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LatencyConfig {
    /// Steps after which a replay gives up and the instance counts as infeasible.
    pub step_limit: u64,
}

impl Default for LatencyConfig {
    /// 10,000 steps are more than a minute of decoding, past any target, and some 35 ms of work where 256
    /// residents decode.
    fn default() -> Self {
        Self { step_limit: 10_000 }
    }
}

/// What an estimator is made from.
#[derive(Clone, Debug, Default)]
pub struct EstimatorSetup {
    /// The options.
    pub config: LatencyConfig,
    /// Parameters of each model in billions, by the pool's model index.
    pub parameters_b: Arc<[f64]>,
}

/// One registered estimator.
#[derive(Clone, Copy)]
pub struct EstimatorEntry {
    /// The name configuration uses.
    pub name: &'static str,
    /// One line for listings.
    pub summary: &'static str,
    /// Makes it.
    pub construct: fn(&EstimatorSetup) -> Box<dyn Estimator>,
}

/// Every estimator, sorted by name.
pub const ESTIMATORS: &[EstimatorEntry] = &[bea::ENTRY, guess::ENTRY, prefill_throughput::ENTRY];

/// Finds a registered estimator.
///
/// # Errors
/// The name is not registered; the error lists those that are.
pub fn estimator(name: &str) -> Result<&'static EstimatorEntry, LatencyError> {
    ESTIMATORS.iter().find(|entry| entry.name == name).ok_or_else(|| LatencyError::UnknownEstimator {
        name: name.to_owned(),
        known: ESTIMATORS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}

/// Why an estimator cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LatencyError {
    /// No estimator has this name.
    #[error("estimator `{name}` is not known; registered: {known}")]
    UnknownEstimator {
        /// The name asked for.
        name: String,
        /// The registered names.
        known: String,
    },
}
