//! Steps that policies share: feasibility, the least TTFT, and the first feasible of a ranking.

use std::{cmp::Ordering, time::Duration};

use rand::{Rng, RngCore};

use super::{Candidates, Choice};
use crate::{
    affinity::Ranked,
    domain::{Estimate, Horizon, NoEstimate, Query, Reason},
};

/// Returns whether an estimate is in the feasible set: within the target where there is one; without one
/// whatever the engine can ever schedule, however long that may take.
#[must_use]
pub fn feasible(estimate: &Estimate, target: Option<Duration>) -> bool {
    match (estimate.ttft, target) {
        (Ok(ttft), Some(target)) => ttft.total_s() <= target.as_secs_f64(),
        (Err(NoEstimate::Unschedulable), _) | (Err(_), Some(_)) => false,
        (_, None) => true,
    }
}

/// Returns the first feasible candidate of a ranking and the probability that it is that one.
///
/// Estimates stop at the tier of the pick: its other members decide only the probability.
pub(super) fn first_feasible(
    candidates: &dyn Candidates,
    ranking: &[Ranked],
    target: Option<Duration>,
) -> Option<(usize, f64)> {
    let fits = |ranked: &Ranked| feasible(&candidates.estimate(ranked.position, Horizon::FirstToken), target);
    let first = ranking.iter().find(|ranked| fits(ranked))?;
    let weight: f64 =
        ranking.iter().filter(|r| r.tier == first.tier && fits(r)).map(|ranked| ranked.weight).sum();
    Some((first.position, first.weight / weight))
}

/// Ranks a set; one of one needs no pipeline.
pub(super) fn rank_set(candidates: &dyn Candidates, set: &[usize], rng: &mut dyn RngCore) -> Vec<Ranked> {
    match set {
        [only] => vec![Ranked { position: *only, tier: 0, weight: 1.0 }],
        _ => candidates.rank(set, rng),
    }
}

/// Returns the candidate with the least TTFT: eq. 5's fallback; ties by utility, then in order.
pub(super) fn least_ttft(candidates: &dyn Candidates) -> Option<usize> {
    (0..candidates.len()).min_by(|&a, &b| {
        let ttft = |i| candidates.estimate(i, Horizon::FirstToken).ttft_s();
        ttft(a).total_cmp(&ttft(b)).then_with(|| better_utility(candidates, a, b))
    })
}

/// Orders by falling utility; an unknown one comes after every known one, then by rising cost, unknown
/// last.
pub(super) fn better_utility(candidates: &dyn Candidates, a: usize, b: usize) -> Ordering {
    let (a, b) = (candidates.prediction(a), candidates.prediction(b));
    known_first(a.utility.map(|u| -u), b.utility.map(|u| -u)).then_with(|| {
        if a.utility.is_none() && b.utility.is_none() {
            known_first(a.cost_usd, b.cost_usd)
        } else {
            Ordering::Equal
        }
    })
}

/// Orders by rising value with unknown ones last.
fn known_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// Chooses among the replicas of the model a request named: the affinity ranking's first feasible one,
/// the least TTFT where none is feasible.
#[must_use]
pub fn pinned(query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
    let all: Vec<usize> = (0..candidates.len()).collect();
    let ranking = rank_set(candidates, &all, rng);
    match first_feasible(candidates, &ranking, query.ttft_target) {
        Some((instance, propensity)) => {
            Some(Choice { instance, interchangeable: all, reason: Reason::Pinned, propensity })
        }
        None => Some(Choice::single(least_ttft(candidates)?, Reason::Pinned)),
    }
}

/// Draws uniformly among the positions of the least value; returns the drawn one with its probability.
pub(super) fn draw_least(values: &[f64], rng: &mut dyn RngCore) -> Option<(usize, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let tied: Vec<usize> = (0..values.len()).filter(|&i| values[i].total_cmp(&least).is_eq()).collect();
    let drawn = if tied.len() == 1 { tied[0] } else { tied[rng.random_range(0..tied.len())] };
    Some((drawn, 1.0 / tied.len() as f64))
}

/// Returns the position of the least value, the first among equals.
pub(super) fn first_least(values: &[f64]) -> Option<usize> {
    (0..values.len()).min_by(|&a, &b| values[a].total_cmp(&values[b]))
}
