//! BEAR Lagrangian (eq. 7): the highest utility less δ times the TTFT, without a hard target.

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, RoutingPolicy, rank::known_first};
use crate::domain::{Horizon, Query, Reason};

/// The relaxed policy: argmax U − δ·TTFT; ties by least TTFT, then in order.
///
/// Where accuracy is unknown for all, it is an unknown constant that drops out: −λ·cost − δ·TTFT
/// decides. Where it is known for some, those come first. At δ = 0 no latency is estimated and utility
/// alone decides, as in the paper.
#[derive(Clone, Copy, Debug, Default)]
pub struct BearLagrangian;

/// Options of [`BearLagrangian`]: none; δ comes with the query.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {}

impl RoutingPolicy for BearLagrangian {
    fn name(&self) -> &'static str {
        "bear-lagrangian"
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let best = (0..candidates.len()).min_by(|&a, &b| {
            let (known_a, loss_a) = loss(query, candidates, a);
            let (known_b, loss_b) = loss(query, candidates, b);
            known_b.cmp(&known_a).then_with(|| known_first(loss_a, loss_b))
        })?;
        Some(Choice::single(best, Reason::Lagrangian))
    }
}

/// Returns whether the utility is known, and −(U − δ·TTFT); absent where not even a cost is known.
fn loss(query: &Query, candidates: &dyn Candidates, i: usize) -> (bool, Option<f64>) {
    let prediction = candidates.prediction(i);
    let weights = query.tradeoff;
    let late = if weights.delta_per_s > 0.0 {
        weights.delta_per_s * candidates.estimate(i, Horizon::FirstToken).ttft_s()
    } else {
        0.0
    };
    let value = prediction.utility.or_else(|| prediction.cost_usd.map(|cost| -weights.lambda_per_usd * cost));
    (prediction.utility.is_some(), value.map(|value| late - value))
}
