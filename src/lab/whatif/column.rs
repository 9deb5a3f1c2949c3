//! One column of a block: the sums of its quantities, and how each is told in the end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Estimated, Line, Moments, Verdict, moments::product, realised::Realised, report::Known};
use crate::domain::{Candidate, Prediction};

/// Quantities of the predicted block.
pub(super) const PREDICTED: [&str; 5] = ["utility", "accuracy", "cost_usd", "ttft_s", "attainment"];
/// Quantities of the observed block.
pub(super) const OBSERVED: [&str; 7] = [
    "ttft_s",
    "attainment",
    "cost_usd",
    "output_tokens",
    "failed",
    "on_time_utility",
    "on_time_utility (predicted accuracy)",
];
/// Those of both that are shares.
const SHARES: [&str; 2] = ["attainment", "failed"];
/// Sums of the observed block: of the utilities those of answers in time; then whether answers came in time, and
/// those that did not.
pub(super) const OBSERVED_SUMS: usize = OBSERVED.len() + 2;
const ON_TIME: usize = OBSERVED.len();
const LATE: usize = OBSERVED.len() + 1;
const UTILITIES: [usize; 2] = [5, 6];

/// One column of a block.
#[derive(Clone, Debug)]
pub(super) struct Column<const N: usize> {
    means: [Moments; N],
    /// Every row, whatever it holds.
    all: Moments,
    models: BTreeMap<String, u64>,
    instances: BTreeMap<String, u64>,
}

impl<const N: usize> Default for Column<N> {
    fn default() -> Self {
        Self {
            means: [Moments::default(); N],
            all: Moments::default(),
            models: BTreeMap::new(),
            instances: BTreeMap::new(),
        }
    }
}

impl<const N: usize> Column<N> {
    /// Returns the part of the column's weight whose rows are in `sums`.
    fn part(&self, sums: &[&Moments]) -> f64 {
        let weight = sums.iter().map(|moments| moments.weight()).sum::<f64>();
        if self.all.weight() > 0.0 { weight / self.all.weight() } else { 0.0 }
    }
}

impl Column<5> {
    /// Adds a choice; `instance`: it is known which, `timed`: the request had a target.
    pub(super) fn predict(
        &mut self,
        candidate: &Candidate,
        (instance, timed): (bool, bool),
        prediction: &Prediction,
    ) {
        let in_time = candidate.feasible.filter(|_| instance && timed);
        let values = [
            prediction.utility,
            prediction.accuracy,
            prediction.cost_usd,
            candidate.ttft_s.filter(|_| instance),
            in_time.map(|yes| if yes { 1.0 } else { 0.0 }),
        ];
        self.all.add(1.0, 1.0);
        for (moments, value) in self.means.iter_mut().zip(values) {
            moments.add_known(1.0, value);
        }
        count(&mut self.models, &candidate.model);
        if instance {
            count(&mut self.instances, candidate.instance.as_str());
        }
    }

    fn told(&self, i: usize) -> Told {
        let moments = &self.means[i];
        Told { estimate: estimate(PREDICTED[i], moments), known: self.part(&[moments]), missing: NOT_HELD }
    }
}

impl Column<OBSERVED_SUMS> {
    /// Adds an outcome.
    pub(super) fn observe(&mut self, weight: f64, realised: &Realised) {
        let late = realised.on_time.filter(|&on_time| on_time <= 0.0);
        let values = [
            realised.ttft_s,
            realised.attainment,
            realised.cost_usd,
            realised.output_tokens,
            Some(realised.failed),
            realised.utility_in_time,
            realised.utility_in_time_by_prediction,
            realised.on_time,
            late,
        ];
        self.all.add(weight, 1.0);
        for (moments, value) in self.means.iter_mut().zip(values) {
            moments.add_known(weight, value);
        }
    }

    /// Tells a quantity. A utility on time is the share of answers in time times the mean of those whose utility is
    /// known: an answer that was late or failed counts 0 whether or not somebody judged it.
    pub(super) fn told(&self, i: usize) -> Told {
        let moments = &self.means[i];
        if !UTILITIES.contains(&i) {
            let known = self.part(&[moments]);
            return Told { estimate: estimate(OBSERVED[i], moments), known, missing: NOT_HELD };
        }
        let late = &self.means[LATE];
        let in_time = self.means[ON_TIME].estimate_share();
        let utility = in_time.and_then(|share| product(&share, moments.estimate().as_ref()));
        Told {
            estimate: utility.map(|e| Estimated { rows: late.rows() + moments.rows(), ..e }),
            known: self.part(&[late, moments]),
            missing: "no answer in time holds it",
        }
    }
}

const NOT_HELD: &str = "no row holds it";

/// One quantity of a column.
pub(super) struct Told {
    pub(super) estimate: Option<Estimated>,
    /// Part of the column's weight that holds it, in `[0,1]`.
    pub(super) known: f64,
    missing: &'static str,
}

impl Told {
    /// Returns the estimate, or that there is none.
    pub(super) fn verdict(&self) -> Verdict {
        self.estimate.map_or_else(|| Verdict::CannotAnswer(self.missing.to_owned()), Verdict::Estimate)
    }
}

fn estimate(name: &str, moments: &Moments) -> Option<Estimated> {
    if SHARES.contains(&name) { moments.estimate_share() } else { moments.estimate() }
}

/// Makes a line of three columns; `judge` says what is told of the first.
pub(super) fn line(name: &str, told: &[Told; 3], judge: impl Fn(&Told) -> Verdict) -> Line {
    let [what_if, logged, logged_all] = told;
    Line {
        name: name.to_owned(),
        what_if: judge(what_if),
        logged: logged.verdict(),
        logged_all: logged_all.verdict(),
        known: Some(Known { what_if: what_if.known, logged: logged.known, logged_all: logged_all.known }),
    }
}

/// Returns the lines of the predicted block.
pub(super) fn predicted(columns: &[Column<5>; 3]) -> Vec<Line> {
    let of = |(i, name): (usize, &&str)| {
        line(name, &columns.each_ref().map(|column| column.told(i)), Told::verdict)
    };
    PREDICTED.iter().enumerate().map(of).collect()
}

/// Returns each model's or each instance's share of the rows of each column.
pub(super) fn shares(columns: &[Column<5>; 3], instances: bool) -> Vec<Line> {
    let counts = columns.each_ref().map(|column| if instances { &column.instances } else { &column.models });
    let names: BTreeSet<&String> = counts.iter().flat_map(|counts| counts.keys()).collect();
    let line = |name: &String| {
        let [what_if, logged, logged_all] = [0, 1, 2].map(|c| {
            let yes = counts[c].get(name).copied().unwrap_or(0);
            let share = Moments::of_share(yes, columns[c].all.rows()).estimate_share();
            share.map_or_else(|| Verdict::CannotAnswer(NOT_HELD.to_owned()), Verdict::Estimate)
        });
        Line { name: name.clone(), what_if, logged, logged_all, known: None }
    };
    names.into_iter().map(line).collect()
}

/// Counts a name once more.
pub(super) fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}
