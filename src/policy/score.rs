//! SCORE (Lakha, Yu and Shahout 2025): predicted quality less penalties for cost and latency.
//!
//! Only its abstract and a remark of the BEAR paper were at hand; the formulas here are our reading of the
//! two. Latency is queueing delay plus the answer's decoding, `T = tpot·(R/b + tokens)`, where R are the
//! output tokens that the residents still have and b the requests that decode side by side. b = 1 serves
//! them one after the other, which is how the BEAR paper describes SCORE. Cost and latency count as shares
//! of the largest among the candidates.

use rand::RngCore;
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, PolicyError, RoutingPolicy,
    registry::{not_negative, parse},
    state::{Totals, tpot_s},
    weighted::{Relative, Score as Sum},
};
use crate::domain::{Horizon, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "score",
    summary: "quality less weighted cost and latency (SCORE, as read from its abstract)",
    build: |options| Ok(Box::new(Score::new(parse(ENTRY.name, options)?)?)),
};

/// Keeps shares finite where every cost or latency is 0.
const FLOOR: f64 = 1e-8;

/// Options of [`Score`]; only their roles are published, so every default is 1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Weight of the penalties against quality.
    pub(super) alpha: f64,
    /// Weight of cost within the penalties.
    pub(super) w_cost: f64,
    /// Weight of latency within the penalties.
    pub(super) w_latency: f64,
    /// Requests that an instance typically decodes side by side.
    pub(super) decode_batch: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { alpha: 1.0, w_cost: 1.0, w_latency: 1.0, decode_batch: 1.0 }
    }
}

/// Takes the best score, the first among equals. A candidate with an unknown signal comes after every one
/// with fewer unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    options: Options,
}

impl Score {
    /// Makes it.
    ///
    /// # Errors
    /// [`PolicyError::OutOfRange`].
    pub(super) fn new(options: Options) -> Result<Self, PolicyError> {
        let Options { alpha, w_cost, w_latency, decode_batch } = options;
        not_negative(ENTRY.name, &[("alpha", alpha), ("w_cost", w_cost), ("w_latency", w_latency)])?;
        if !(decode_batch >= 1.0 && decode_batch.is_finite()) {
            return Err(PolicyError::OutOfRange {
                name: ENTRY.name,
                option: String::from("decode_batch"),
                value: decode_batch,
                allowed: "at least 1",
            });
        }
        Ok(Self { options })
    }

    /// Returns the whole answer's latency, seconds; absent where a part of it is unknown.
    fn latency_s(&self, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        let own_tokens = candidates.prediction(i).output_tokens?;
        let totals = Totals::of(candidates.view(i))?;
        let tpot_s = tpot_s(&candidates.estimate(i, Horizon::Completion))?;
        Some(tpot_s * (totals.remaining_tokens / self.options.decode_batch + own_tokens))
    }
}

impl RoutingPolicy for Score {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let Options { alpha, w_cost, w_latency, .. } = self.options;
        let all = 0..candidates.len();
        let costs = all.clone().map(|i| candidates.prediction(i).cost_usd.map(|usd| usd * 1e6)).collect();
        let weighs_latency = alpha * w_latency > 0.0;
        let latency = |i| if weighs_latency { self.latency_s(candidates, i) } else { None };
        let cost = Relative::new(costs, FLOOR);
        let latency = Relative::new(all.clone().map(latency).collect(), FLOOR);
        let score = |i: usize| {
            Sum::default()
                .add(1.0, candidates.prediction(i).accuracy)
                .add(-alpha * w_cost, cost.share(i))
                .add(-alpha * w_latency, latency.share(i))
        };
        let scores: Vec<Sum> = all.clone().map(score).collect();
        let best = all.min_by(|&a, &b| scores[a].better(&scores[b]))?;
        Some(Choice::single(best, Reason::Score))
    }

    /// The whole answer's latency, seconds.
    fn believed_latency_s(&self, _query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        self.latency_s(candidates, i)
    }
}
