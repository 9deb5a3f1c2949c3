//! One point tried: its values, how long and how often it ran, and what came out.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use super::{Goal, Plan, metric};
use crate::lab::{Interval, Metrics};

/// Metrics that every trial shows beside those asked about.
const SHOWN: [&str; 4] = ["on_time_utility", "attainment", "mean_cost_usd", "ttft_s.p95"];

/// 97.5% quantiles of Student's t from 1 to 30 degrees of freedom (any statistical table).
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// How much simulation a trial got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// A quarter of the scenario's time, one seed.
    Short,
    /// All of it, one seed.
    Full,
    /// All of it, every seed.
    AllSeeds,
}

/// One point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Its values, one a range of the plan.
    pub values: Vec<f64>,
    /// How much simulation it got.
    pub effort: Effort,
    /// Metrics by name, means over its seeds; one that a run lacks is not there.
    pub metrics: BTreeMap<String, Interval>,
    /// By how much it misses its goals, relative to their bounds, summed; 0: it meets them.
    pub shortfall: f64,
    /// Whether no other trial of the search is at least as good in the objective and in every goal's metric.
    pub on_front: bool,
    /// Objective, more is better.
    #[serde(skip)]
    pub(super) merit: f64,
}

impl Trial {
    /// Sums up the runs of a point.
    pub(super) fn new(plan: &Plan, values: Vec<f64>, effort: Effort, runs: &[Metrics]) -> Self {
        let asked = plan.goals.iter().map(|goal| goal.metric.as_str());
        let names = SHOWN.into_iter().chain(asked).chain([plan.objective.metric.as_str()]);
        let metrics: BTreeMap<String, Interval> =
            names.filter_map(|name| Some((name.to_owned(), mean(runs, name)?))).collect();
        let mut trial =
            Self { values, effort, metrics, shortfall: 0.0, on_front: false, merit: f64::NEG_INFINITY };
        trial.merit = plan.objective.merit(trial.mean(&plan.objective.metric));
        trial.shortfall = plan.goals.iter().map(|goal| goal.shortfall(trial.mean(&goal.metric))).sum();
        trial
    }

    /// Returns whether it meets every goal.
    #[must_use]
    pub fn meets(&self) -> bool {
        self.shortfall <= 0.0
    }

    /// Returns the mean of a metric; NaN where it has none.
    pub(super) fn mean(&self, name: &str) -> f64 {
        self.metrics.get(name).map_or(f64::NAN, |interval| interval.mean)
    }

    /// Orders by what is wanted, best first: points that meet the goals by the objective, then the others by
    /// how near they come.
    pub(super) fn better(&self, other: &Self) -> Ordering {
        let misses = self.shortfall.total_cmp(&other.shortfall);
        misses.then_with(|| other.merit.total_cmp(&self.merit))
    }

    /// Returns whether `self` is at least as good in everything and better in something.
    pub(super) fn dominates(&self, other: &Self, goals: &[Goal]) -> bool {
        let toward = |trial: &Self, goal: &Goal| {
            let mean = trial.mean(&goal.metric);
            if goal.at_least { mean } else { -mean }
        };
        let mut pairs = vec![(self.merit, other.merit)];
        pairs.extend(goals.iter().map(|goal| (toward(self, goal), toward(other, goal))));
        pairs.iter().all(|(a, b)| a >= b) && pairs.iter().any(|(a, b)| a > b)
    }
}

/// Returns the mean of a metric over runs with its 95% interval; one run has no width.
fn mean(runs: &[Metrics], name: &str) -> Option<Interval> {
    let values: Vec<f64> = runs.iter().map(|run| metric(run, name)).collect::<Option<_>>()?;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let freedom = values.len().saturating_sub(1);
    let reach = match freedom {
        0 => 0.0,
        _ => T_975[freedom.min(T_975.len()) - 1] * (squares / (n - 1.0) / n).sqrt(),
    };
    mean.is_finite().then_some(Interval { mean, low: mean - reach, high: mean + reach })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_over_seeds_is_students() {
        let runs = [1.0, 2.0, 3.0].map(|attainment| Metrics { attainment, ..Metrics::default() });
        let interval = mean(&runs, "attainment").unwrap();
        // Standard deviation 1 over √3, t of 2 degrees of freedom 4.303.
        assert_eq!(interval.mean, 2.0);
        assert!((interval.high - 2.0 - 4.303 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(mean(&runs[..1], "attainment").unwrap().high, 1.0);
        assert_eq!(mean(&runs, "ttft_mape"), None);
    }
}
