//! One point tried: its values, how long and how often it ran, and what came out.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use super::{Goal, Met, Plan, metric};
use crate::lab::{Interval, Metrics, figures};

/// Metrics that every trial shows beside those asked about.
const SHOWN: [&str; 4] = ["on_time_utility", "attainment", "mean_cost_usd", "ttft_s.p95"];

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
    /// All of it, seeds that had no part in the search.
    Fresh,
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
    /// How it stands to each goal of the plan.
    pub goals: Vec<Met>,
    /// Whether it ran in full over all seeds, and no other such trial is at least as good in the objective and in
    /// every goal's metric and better in one.
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
        let met = |goal: &Goal| metrics.get(&goal.metric).map_or(Met::Not, |i| goal.judge(i, runs.len()));
        let goals = plan.goals.iter().map(met).collect();
        let (shortfall, merit) = (0.0, f64::NEG_INFINITY);
        let mut trial = Self { values, effort, metrics, shortfall, goals, on_front: false, merit };
        trial.merit = plan.objective.merit(trial.mean(&plan.objective.metric));
        trial.shortfall = plan.goals.iter().map(|goal| goal.shortfall(trial.mean(&goal.metric))).sum();
        trial
    }

    /// Returns whether it meets every goal.
    #[must_use]
    pub fn meets(&self) -> bool {
        self.shortfall <= 0.0
    }

    /// Returns whether it would meet every goal if its means moved as those of one trial did to another.
    pub(super) fn meets_if_moved(&self, from: &Self, to: &Self, plan: &Plan) -> bool {
        plan.goals.iter().all(|goal| {
            let name = &goal.metric;
            goal.shortfall(self.mean(name) + to.mean(name) - from.mean(name)) <= 0.0
        })
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

    /// Returns whether everything that the plan asks about came out as a number.
    pub(super) fn is_known(&self, plan: &Plan) -> bool {
        let asked = plan.goals.iter().map(|goal| &goal.metric).chain([&plan.objective.metric]);
        asked.into_iter().all(|name| self.mean(name).is_finite())
    }

    /// Returns whether `self` is at least as good in everything asked about and better in something; what is not
    /// known beats nothing.
    pub(super) fn dominates(&self, other: &Self, plan: &Plan) -> bool {
        let toward = |trial: &Self, goal: &Goal| {
            let mean = trial.mean(&goal.metric);
            if goal.at_least { mean } else { -mean }
        };
        let mut pairs = vec![(self.merit, other.merit)];
        pairs.extend(plan.goals.iter().map(|goal| (toward(self, goal), toward(other, goal))));
        self.is_known(plan) && pairs.iter().all(|(a, b)| a >= b) && pairs.iter().any(|(a, b)| a > b)
    }

    /// Orders by rising values.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let pairs = self.values.iter().zip(&other.values);
        pairs.map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// Returns the mean of a metric over runs with its 95% interval; one run has no width.
fn mean(runs: &[Metrics], name: &str) -> Option<Interval> {
    let values: Vec<f64> = runs.iter().map(|run| metric(run, name)).collect::<Option<_>>()?;
    figures::interval(&values).filter(|interval| interval.mean.is_finite())
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
