//! LMDeploy's proxy, `min_expected_latency`: fewest unfinished requests for the instance's speed.
//!
//! The rule of InternLM/lmdeploy at 1263d5c. A speed is whatever its operator measured; the BEAR paper's
//! baseline of that name takes each instance's throughput in requests a second.

use std::collections::BTreeMap;

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, PolicyError, RoutingPolicy, rank::draw_least, registry::parse};
use crate::domain::{Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "lmdeploy",
    summary: "fewest unfinished requests for the instance's speed (LMDeploy, expected latency)",
    build: |options| Ok(Box::new(LmDeploy::new(parse(ENTRY.name, options)?)?)),
};

/// Options of [`LmDeploy`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Requests a second, by instance or model; an instance's own comes before its model's.
    pub(super) speeds: BTreeMap<String, f64>,
}

/// Takes the least ratio of this router's unfinished requests to speed.
///
/// Candidates are visited in random order and the first of the least is kept: a uniform draw among equals.
/// A candidate without a speed has the mean of those given, 1 where none is.
#[derive(Clone, Debug)]
pub(super) struct LmDeploy {
    speeds: BTreeMap<String, f64>,
}

impl LmDeploy {
    /// Makes it.
    ///
    /// # Errors
    /// [`PolicyError::OutOfRange`].
    pub(super) fn new(options: Options) -> Result<Self, PolicyError> {
        match options.speeds.iter().find(|(_, speed)| !speed.is_finite() || **speed <= 0.0) {
            Some((of, &value)) => Err(PolicyError::OutOfRange {
                name: ENTRY.name,
                option: format!("speeds.{of}"),
                value,
                allowed: "a number above 0",
            }),
            None => Ok(Self { speeds: options.speeds }),
        }
    }

    fn given(&self, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        let own = self.speeds.get(candidates.view(i).spec.id.as_str());
        own.or_else(|| self.speeds.get(candidates.model_id(i)?.as_str())).copied()
    }

    /// Returns each candidate's unfinished requests over its speed: seconds, where speeds are requests a
    /// second.
    fn expected_s(&self, candidates: &dyn Candidates) -> Vec<f64> {
        let given: Vec<Option<f64>> = (0..candidates.len()).map(|i| self.given(candidates, i)).collect();
        let known: Vec<f64> = given.iter().flatten().copied().collect();
        let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let ratio = |(i, speed): (usize, Option<f64>)| {
            f64::from(candidates.view(i).load.requests) / speed.unwrap_or(mean)
        };
        given.into_iter().enumerate().map(ratio).collect()
    }
}

impl RoutingPolicy for LmDeploy {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
        let (instance, propensity) = draw_least(&self.expected_s(candidates), rng)?;
        Some(Choice { propensity, ..Choice::single(instance, Reason::LeastLatency) })
    }

    /// The time until the unfinished requests are done, seconds where speeds are requests a second.
    fn believed_latency_s(&self, _query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        self.expected_s(candidates).get(i).copied()
    }
}
