//! BEAR Lagrangian (eq. 7): the highest utility less δ times the TTFT, without a hard target.

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, RoutingPolicy, rank::better_utility, registry::parse};
use crate::domain::{Horizon, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "bear-lagrangian",
    summary: "highest utility less delta times predicted TTFT (eq. 7)",
    build: |options| parse::<Options>(ENTRY.name, options).map(|_| Box::new(BearLagrangian) as _),
};

/// The relaxed policy: argmax U − δ·TTFT; ties by utility, then in order.
///
/// An unknown part drops out as a constant: where a model has no accuracy, −λ·cost − δ·TTFT stands for
/// it, and without a cost −δ·TTFT. The more is known, the earlier a candidate comes. At δ = 0 no latency
/// is estimated and utility alone decides, as in the paper.
#[derive(Clone, Copy, Debug, Default)]
pub struct BearLagrangian;

/// Options of [`BearLagrangian`]: none; δ comes with the query.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

impl RoutingPolicy for BearLagrangian {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let best = (0..candidates.len()).min_by(|&a, &b| {
            let (unknown_a, loss_a) = loss(query, candidates, a);
            let (unknown_b, loss_b) = loss(query, candidates, b);
            unknown_a
                .cmp(&unknown_b)
                .then_with(|| loss_a.total_cmp(&loss_b))
                .then_with(|| better_utility(candidates, a, b))
        })?;
        Some(Choice::single(best, Reason::Lagrangian))
    }
}

/// Returns how many parts of the utility are unknown, and −(U − δ·TTFT) without them.
fn loss(query: &Query, candidates: &dyn Candidates, i: usize) -> (u8, f64) {
    let prediction = candidates.prediction(i);
    let weights = query.tradeoff;
    let late = if weights.delta_per_s > 0.0 {
        weights.delta_per_s * candidates.estimate(i, Horizon::FirstToken).ttft_s()
    } else {
        0.0
    };
    match (prediction.utility, prediction.cost_usd) {
        (Some(utility), _) => (0, late - utility),
        (None, Some(cost_usd)) => (1, late + weights.lambda_per_usd * cost_usd),
        (None, None) => (2, late),
    }
}
