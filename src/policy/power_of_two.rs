//! Power of two choices: the less loaded of two instances drawn at random.
//!
//! The rule of the SGLang gateway and of vLLM's router: token loads decide where both instances tell theirs,
//! this router's own requests in flight otherwise.

use std::cmp::Ordering;

use rand::RngCore;
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, RoutingPolicy, pair::better_of_two, registry::parse, state::Totals,
};
use crate::domain::{Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "power-of-two",
    summary: "the less loaded of two instances drawn at random",
    build: |options| parse::<Options>(ENTRY.name, options).map(|_| Box::new(PowerOfTwo) as _),
};

/// Options of [`PowerOfTwo`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

/// Draws two distinct candidates and takes the less loaded, the first drawn among equals.
#[derive(Clone, Copy, Debug)]
pub(super) struct PowerOfTwo;

impl RoutingPolicy for PowerOfTwo {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
        let told = |i: usize| {
            let totals = Totals::of(candidates.view(i))?;
            totals.kv.map(|_| totals.held_tokens)
        };
        let tokens: Vec<Option<u64>> = (0..candidates.len()).map(told).collect();
        let order = |a: usize, b: usize| -> Ordering {
            match (tokens[a], tokens[b]) {
                (Some(of_a), Some(of_b)) => of_a.cmp(&of_b),
                _ => candidates.view(a).load.requests.cmp(&candidates.view(b).load.requests),
            }
        };
        let (instance, propensity) = better_of_two(candidates.len(), order, rng)?;
        Some(Choice { propensity, ..Choice::single(instance, Reason::LeastLoad) })
    }
}
