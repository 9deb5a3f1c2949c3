//! BEAR constrained (eq. 5): the highest utility among the candidates predicted to meet the TTFT
//! target; the least TTFT where none does.

use rand::RngCore;
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, RoutingPolicy,
    rank::{better_utility, first_feasible, least_ttft, rank_set},
    registry::parse,
};
use crate::domain::{Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "bear",
    summary: "highest utility among instances predicted to meet the TTFT target (eq. 5)",
    build: |options| parse::<Options>(ENTRY.name, options).map(|_| Box::new(Bear) as _),
};

/// The constrained policy.
///
/// Models go in utility order; replicas of one model at one price are interchangeable, so the affinity
/// pipeline ranks them and the first feasible one is taken. A model whose utility is unknown comes
/// after every known one, cheapest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bear;

/// Options of [`Bear`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

impl RoutingPolicy for Bear {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
        for set in interchangeable_sets(candidates) {
            let ranking = rank_set(candidates, &set, rng);
            if let Some((instance, propensity)) = first_feasible(candidates, &ranking, query.ttft_target) {
                let known = candidates.prediction(instance).utility.is_some();
                let reason = if known { Reason::MaxUtility } else { Reason::LeastCost };
                return Some(Choice { instance, interchangeable: set, reason, propensity });
            }
        }
        Some(Choice::single(least_ttft(candidates)?, Reason::LeastTtft))
    }
}

/// Returns the sets of candidates with one model and one price, best utility first, ties in order.
fn interchangeable_sets(candidates: &dyn Candidates) -> Vec<Vec<usize>> {
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for i in 0..candidates.len() {
        let spec = &candidates.view(i).spec;
        let alike = |set: &&mut Vec<usize>| {
            let other = &candidates.view(set[0]).spec;
            other.model == spec.model && other.price == spec.price
        };
        match sets.iter_mut().find(alike) {
            Some(set) => set.push(i),
            None => sets.push(vec![i]),
        }
    }
    sets.sort_by(|a, b| better_utility(candidates, a[0], b[0]));
    sets
}
