//! Latency-agnostic: the highest utility, blind to load (the paper's baseline of the same name).

use rand::{Rng, RngCore};
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, RoutingPolicy, rank::better_utility, registry::parse};
use crate::domain::{Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "latency-agnostic",
    summary: "highest utility, blind to load",
    build: |options| parse::<Options>(ENTRY.name, options).map(|_| Box::new(LatencyAgnostic) as _),
};

/// Takes the highest utility; equal ones (replicas) are drawn uniformly.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyAgnostic;

/// Options of [`LatencyAgnostic`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

impl RoutingPolicy for LatencyAgnostic {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
        let best = (0..candidates.len()).min_by(|&a, &b| better_utility(candidates, a, b))?;
        let tied: Vec<usize> =
            (0..candidates.len()).filter(|&i| better_utility(candidates, best, i).is_eq()).collect();
        let instance = if tied.len() == 1 { best } else { tied[rng.random_range(0..tied.len())] };
        let known = candidates.prediction(instance).utility.is_some();
        let reason = if known { Reason::MaxUtility } else { Reason::LeastCost };
        Some(Choice { propensity: 1.0 / tied.len() as f64, ..Choice::single(instance, reason) })
    }
}
