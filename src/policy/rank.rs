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

/// Members of a tier that are estimated for the probability of its pick alone; a tier of more is judged by them.
const MOST_FOR_PROBABILITY: usize = 3;

/// Returns the first feasible candidate of a ranking and the probability that it is that one.
///
/// The other members of the pick's tier decide only the probability. It is exact where they are few. Of a large
/// tier, which the ranking has in random order, the members up to the pick and a few behind it are estimated,
/// and the rest is held to be feasible in their proportion.
pub(super) fn first_feasible(
    candidates: &dyn Candidates,
    ranking: &[Ranked],
    target: Option<Duration>,
) -> Option<(usize, f64)> {
    let target_s = target.map_or(f64::INFINITY, |target| target.as_secs_f64());
    let fits = |ranked: &Ranked| {
        candidates.least_ttft_s(ranked.position) <= target_s
            && feasible(&candidates.estimate(ranked.position, Horizon::FirstToken), target)
    };
    let at = ranking.iter().position(fits)?;
    let first = &ranking[at];
    let tier: Vec<&Ranked> = ranking.iter().filter(|ranked| ranked.tier == first.tier).collect();
    let before = ranking[..at].iter().filter(|ranked| ranked.tier == first.tier).count();
    let (asked, rest) = tier.split_at(tier.len().min(before + 1 + MOST_FOR_PROBABILITY));
    let weight = |ranked: &[&Ranked]| ranked.iter().map(|r| r.weight).sum::<f64>();
    let feasible_weight: f64 = asked.iter().filter(|ranked| fits(ranked)).map(|ranked| ranked.weight).sum();
    let judged = feasible_weight + weight(rest) * feasible_weight / weight(asked);
    Some((first.position, first.weight / judged))
}

/// Ranks a set; one of one needs no pipeline.
pub(super) fn rank_set(candidates: &dyn Candidates, set: &[usize], rng: &mut dyn RngCore) -> Vec<Ranked> {
    match set {
        [only] => vec![Ranked { position: *only, tier: 0, weight: 1.0 }],
        _ => candidates.rank(set, rng),
    }
}

/// Returns the candidate with the least TTFT: eq. 5's fallback; ties by utility, then in order.
///
/// They are asked in the order of their bounds, and those whose bound lies above the least so far not at all.
pub(super) fn least_ttft(candidates: &dyn Candidates) -> Option<usize> {
    let mut order: Vec<(f64, usize)> =
        (0..candidates.len()).map(|i| (candidates.least_ttft_s(i), i)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut best: Option<(f64, usize)> = None;
    for (least_s, i) in order {
        if best.is_some_and(|(ttft_s, _)| least_s > ttft_s) {
            break;
        }
        let ttft_s = candidates.estimate(i, Horizon::FirstToken).ttft_s();
        let better = best.is_none_or(|(best_s, b)| {
            let by_utility = || better_utility(candidates, i, b).then(i.cmp(&b));
            ttft_s.total_cmp(&best_s).then_with(by_utility).is_lt()
        });
        if better {
            best = Some((ttft_s, i));
        }
    }
    best.map(|(_, i)| i)
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
