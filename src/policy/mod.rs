//! Routing policies: which candidate serves a query. One file a policy, one line each in [`POLICIES`].
//!
//! A policy that learns or counts does so when it hears of a placement or of an end, never while it is
//! asked for a choice: asking twice is harmless.

mod bear;
mod bear_lagrangian;
mod block;
mod dynamo;
mod latency_agnostic;
mod lmdeploy;
mod lmdeploy_observed;
mod pair;
mod power_of_two;
mod prefix_index;
mod rank;
mod registry;
mod round_robin;
mod route_balance;
mod score;
mod sglang_cache_aware;
mod shortest_queue;
mod state;
#[cfg(test)]
mod tests;
mod vllm_sr;
mod weighted;

use rand::RngCore;

pub use self::bear::Bear;
pub use bear_lagrangian::BearLagrangian;
pub use latency_agnostic::LatencyAgnostic;
pub use rank::{feasible, pinned};
pub use registry::{POLICIES, PolicyConfig, PolicyEntry, PolicyError};
pub use round_robin::RoundRobin;
pub use shortest_queue::ShortestQueue;

use crate::{
    affinity::Ranked,
    domain::{Estimate, Horizon, InstanceView, ModelId, Outcome, Placement, Prediction, Query, Reason},
};

/// Picks one of the eligible candidates.
pub trait RoutingPolicy: Send + Sync {
    /// Returns the registered name.
    fn name(&self) -> &'static str;
    /// Chooses; absent only where there are no candidates. Changes nothing.
    fn choose(&self, query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice>;
    /// Learns that a query was placed (instances are pool positions).
    fn dispatched(&self, _query: &Query, _placement: &Placement) {}
    /// Learns how a request ended (the instance is a pool position).
    fn observe(&self, _outcome: &Outcome) {}
    /// Returns the latency that this policy believes of candidate `i`, seconds, for tables and figures;
    /// absent: it believes none. What kind of latency it is the policy's own documentation says.
    fn believed_latency_s(&self, _query: &Query, _candidates: &dyn Candidates, _i: usize) -> Option<f64> {
        None
    }
}

/// The eligible instances in pool order, with what is known and what can be found out of each.
///
/// [`Self::estimate`] is the costly question (a replay); asked again it repeats its answer.
pub trait Candidates {
    /// Returns how many candidates there are.
    fn len(&self) -> usize;
    /// Returns whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the pool position of candidate `i`, as placements and outcomes name it.
    fn position(&self, i: usize) -> usize;
    /// Returns the name of candidate `i`'s model, as configuration names it; absent: not told.
    fn model_id(&self, _i: usize) -> Option<&ModelId> {
        None
    }
    /// Returns what is known of candidate `i`.
    fn view(&self, i: usize) -> &InstanceView;
    /// Returns accuracy, length, cost and utility of candidate `i`.
    fn prediction(&self, i: usize) -> &Prediction;
    /// Returns the latency estimate of candidate `i` up to `horizon`.
    fn estimate(&self, i: usize, horizon: Horizon) -> Estimate;
    /// Returns a TTFT that the estimate of candidate `i` does not fall below, seconds, without making it.
    fn least_ttft_s(&self, _i: usize) -> f64 {
        0.0
    }
    /// Ranks candidates held interchangeable by the affinity pipeline's cheap signals, best first;
    /// positions are candidates.
    fn rank(&self, set: &[usize], rng: &mut dyn RngCore) -> Vec<Ranked>;
}

/// A policy's choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The chosen candidate.
    pub instance: usize,
    /// The candidates held interchangeable with it, itself included.
    pub interchangeable: Vec<usize>,
    /// Why.
    pub reason: Reason,
    /// Probability of the same choice from the same state.
    pub propensity: f64,
}

impl Choice {
    /// Makes a choice that nothing is interchangeable with.
    #[must_use]
    pub fn single(instance: usize, reason: Reason) -> Self {
        Self { instance, interchangeable: vec![instance], reason, propensity: 1.0 }
    }
}
