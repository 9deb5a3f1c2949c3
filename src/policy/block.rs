//! Block (Da and Kalyvianaki 2025): least predicted latency of the whole answer.
//!
//! The rule of its port in AKafakA/route-balance at 671db9f, with Block's own random draw among equals. Its
//! predictor simulates an instance with the request added; here the router's TTFT estimator, carried to the
//! last token, is that simulation.

use rand::RngCore;
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, RoutingPolicy, pair::better_of_two, rank::draw_least, registry::parse,
    state::residents,
};
use crate::domain::{Horizon, Query, Reason, Ttft};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "block",
    summary: "least predicted latency of the whole answer (Block)",
    build: |options| parse::<Options>(ENTRY.name, options).map(|options| Box::new(Block { options }) as _),
};

/// Latency of an instance without a prediction, before its residents, seconds (the port's).
const UNPREDICTED_S: f64 = 1e6;

/// Options of [`Block`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Whether only two candidates, drawn at random, are compared. The stated probability of a choice is
    /// over all pairs, so every candidate is estimated all the same.
    pub(super) power_of_two: bool,
}

/// Takes the least `TTFT + tokens·TPOT`, a uniform draw among equals. One without a prediction comes after
/// all others, by its residents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) options: Options,
}

/// Returns the predicted latency, seconds; where no length is predicted the client's cap stands for it.
fn latency_s(query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
    let tokens = candidates.prediction(i).output_tokens.or(query.max_output_tokens.map(f64::from))?;
    let estimate = candidates.estimate(i, Horizon::Completion);
    let ttft_s = estimate.ttft.ok().map(Ttft::total_s)?;
    match (estimate.tpot_s, estimate.e2e_s) {
        (Some(tpot_s), _) => Some(ttft_s + tokens * tpot_s),
        // An answer of one token has no time after its first.
        (None, whole) => whole,
    }
}

impl RoutingPolicy for Block {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
        let latency = |i| {
            let unpredicted = || UNPREDICTED_S + f64::from(residents(candidates.view(i)));
            latency_s(query, candidates, i).unwrap_or_else(unpredicted)
        };
        let latencies: Vec<f64> = (0..candidates.len()).map(latency).collect();
        let (instance, propensity) = if self.options.power_of_two && latencies.len() > 2 {
            better_of_two(latencies.len(), |a, b| latencies[a].total_cmp(&latencies[b]), rng)?
        } else {
            draw_least(&latencies, rng)?
        };
        Some(Choice { propensity, ..Choice::single(instance, Reason::LeastLatency) })
    }

    /// The whole answer's latency, seconds.
    fn believed_latency_s(&self, query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        latency_s(query, candidates, i)
    }
}
