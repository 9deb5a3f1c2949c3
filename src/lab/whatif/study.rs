//! The sums of a what-if: rows go in one at a time, a [`Report`] comes out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Agreement, Answer, Calibration, Change, Chosen, Estimated, Line, LoggedRow, Moments, Observed, Predicted,
    Replayer, Report, Rows, Verdict,
    realised::{Realised, realised},
};
use crate::{
    domain::{Candidate, Prediction, Reason},
    lab::LabError,
};

/// When the observed block refuses, and how rows are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Least effective rows of an observed estimate.
    pub least_effective_rows: f64,
    /// Least share of rows with a known weight and a supported choice, in `[0,1]`; also the least mean weight.
    pub least_coverage: f64,
    /// Whether the turns of a logged round robin count as drawn, each eligible instance as likely.
    pub turns_as_draws: bool,
    /// Seed of the draws of policies that draw.
    pub seed: u64,
}

impl Default for Rules {
    /// Under 100 effective rows an interval of shares spans ±10 points; under 95% coverage the rows left out can
    /// move a share by 5 points.
    fn default() -> Self {
        Self { least_effective_rows: 100.0, least_coverage: 0.95, turns_as_draws: false, seed: 1 }
    }
}

const PREDICTED: [&str; 5] = ["utility", "accuracy", "cost_usd", "ttft_s", "attainment"];
const OBSERVED: [&str; 7] = [
    "ttft_s",
    "attainment",
    "cost_usd",
    "output_tokens",
    "failed",
    "on_time_utility",
    "on_time_utility (predicted accuracy)",
];
const CALIBRATED: [(&str, bool); 4] =
    [("ttft_s", true), ("attainment", false), ("cost_usd", true), ("output_tokens", true)];

/// One column of a block.
#[derive(Clone, Debug)]
struct Column<const N: usize> {
    means: [Moments; N],
    models: BTreeMap<String, u64>,
    instances: BTreeMap<String, u64>,
}

impl<const N: usize> Default for Column<N> {
    fn default() -> Self {
        Self { means: [Moments::default(); N], models: BTreeMap::new(), instances: BTreeMap::new() }
    }
}

/// Predicted against observed of one quantity.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    predicted: Moments,
    observed: Moments,
    difference: Moments,
    relative: Moments,
}

/// A what-if in progress.
pub struct Study {
    rules: Rules,
    new: Replayer,
    /// The log's own policy with nothing changed; absent once it cannot be replayed.
    same: Option<Replayer>,
    rows: Rows,
    predicted: [Column<5>; 3],
    observed: [Column<7>; 3],
    weights: Moments,
    mean_weight: Moments,
    unsupported: u64,
    same_instance: u64,
    same_model: u64,
    reproduced: Moments,
    calibration: [Pair; 4],
}

/// Positions of the columns: new choices, logged ones on the same rows, logged ones on all.
const NEW: usize = 0;
const LOGGED: usize = 1;
const ALL: usize = 2;

impl Study {
    /// Begins a what-if.
    ///
    /// # Errors
    /// [`LabError::Policy`] where the change names a policy or an option that does not exist.
    pub fn new(change: Change, rules: Rules) -> Result<Self, LabError> {
        Ok(Self {
            new: Replayer::new(change, rules.seed)?,
            same: Some(Replayer::new(Change::default(), rules.seed)?),
            rules,
            rows: Rows::default(),
            predicted: Default::default(),
            observed: Default::default(),
            weights: Moments::default(),
            mean_weight: Moments::default(),
            unsupported: 0,
            same_instance: 0,
            same_model: 0,
            reproduced: Moments::default(),
            calibration: Default::default(),
        })
    }

    /// Returns the replayer of the change.
    #[must_use]
    pub const fn replayer(&self) -> &Replayer {
        &self.new
    }

    /// Adds a row of the log; rows come in its order.
    ///
    /// # Errors
    /// [`LabError::Policy`] where the row names a policy that does not exist and the change none.
    pub fn add(&mut self, row: &LoggedRow) -> Result<(), LabError> {
        if row.decision.attempt > 1 {
            self.rows.later_attempts += 1;
            return Ok(());
        }
        let Some(logged) = row.decision.chosen() else {
            self.rows.without_decision += 1;
            return Ok(());
        };
        self.rows.first_attempts += 1;
        count(&mut self.rows.policies, &row.decision.policy);
        count(&mut self.rows.predictors, row.decision.predictor_version.as_deref().unwrap_or("not recorded"));
        let answer = self.new.answer(row)?;
        let realised = realised(row, self.new.change());
        self.predict(row, logged, &answer);
        self.observe(row, &realised, &answer);
        self.calibrate(logged, row, &realised);
        self.reproduce(row);
        Ok(())
    }

    fn predict(&mut self, row: &LoggedRow, logged: &Candidate, answer: &Answer) {
        let table = &row.decision.candidates;
        let timed = row.decision.ttft_target_ms.is_some();
        let of_logged = self.new.change().predict(row, logged);
        self.predicted[ALL].predict(logged, (true, timed), &of_logged);
        let (candidate, instance) = match answer.chosen {
            Chosen::Nothing(why) => return count(&mut self.rows.unanswered, why.label()),
            Chosen::Instance { candidate, .. } => (&table[candidate], true),
            Chosen::Model { candidate } => (&table[candidate], false),
        };
        self.rows.answered += 1;
        self.rows.answered_by_model += u64::from(!instance);
        self.rows.answered_by_assumption += u64::from(answer.assumed);
        self.same_instance += u64::from(instance && candidate.instance == logged.instance);
        self.same_model += u64::from(candidate.model == logged.model);
        let prediction = answer.prediction.unwrap_or_default();
        self.predicted[NEW].predict(candidate, (instance, timed), &prediction);
        self.predicted[LOGGED].predict(logged, (true, timed), &of_logged);
    }

    fn observe(&mut self, row: &LoggedRow, realised: &Realised, answer: &Answer) {
        self.observed[ALL].observe(1.0, realised);
        let propensity = self.propensity(row);
        let Some(of_logged) = answer.of_logged.filter(|_| propensity > 0.0 && propensity <= 1.0) else {
            return;
        };
        let weight = of_logged / propensity;
        self.weights.add(weight, weight);
        self.mean_weight.add(1.0, weight);
        // Turns that count as drawn reach every eligible instance.
        let turns_drawn = propensity < row.decision.propensity;
        self.unsupported += u64::from(answer.unsupported && !turns_drawn);
        self.observed[NEW].observe(weight, realised);
        self.observed[LOGGED].observe(1.0, realised);
    }

    /// Returns the probability of the logged choice under the logged policy.
    fn propensity(&self, row: &LoggedRow) -> f64 {
        if self.rules.turns_as_draws && row.decision.reason == Reason::RoundRobin {
            let eligible = row.decision.candidates.iter().filter(|c| c.ineligible.is_none()).count();
            return 1.0 / eligible.max(1) as f64;
        }
        row.decision.propensity
    }

    fn calibrate(&mut self, logged: &Candidate, row: &LoggedRow, realised: &Realised) {
        let in_time = logged.feasible.filter(|_| row.decision.ttft_target_ms.is_some());
        let tokens = logged.output_tokens.map(|tokens| tokens * f64::from(row.query.choices.max(1)));
        let cost_usd = self.new.change().predict(row, logged).cost_usd;
        let pairs = [
            (logged.ttft_s, realised.ttft_s),
            (in_time.map(share), realised.attainment),
            (cost_usd, realised.cost_usd),
            (tokens, realised.output_tokens),
        ];
        for (pair, (predicted, observed)) in self.calibration.iter_mut().zip(pairs) {
            let (Some(predicted), Some(observed)) = (predicted, observed) else { continue };
            pair.predicted.add(1.0, predicted);
            pair.observed.add(1.0, observed);
            pair.difference.add(1.0, predicted - observed);
            if observed > 0.0 {
                pair.relative.add(1.0, (predicted - observed).abs() / observed);
            }
        }
    }

    fn reproduce(&mut self, row: &LoggedRow) {
        let Some(same) = &mut self.same else { return };
        match same.answer(row) {
            Ok(Answer { of_logged: Some(of_logged), .. }) => {
                self.reproduced.add(1.0, share(of_logged > 0.0));
            }
            Ok(_) => {}
            Err(_) => self.same = None,
        }
    }

    /// Returns what was found so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let answered = self.rows.answered;
        let part = |count: u64| (answered > 0).then(|| count as f64 / answered as f64);
        let reproduced = self.same.as_ref().and_then(|_| self.reproduced.estimate());
        Report {
            change: self.new.change().clone(),
            rows: self.rows.clone(),
            predicted: self.report_predicted(),
            observed: self.report_observed(),
            agreement: Agreement {
                same_instance: part(self.same_instance),
                same_model: part(self.same_model),
                reproduced: reproduced.map(|estimate| estimate.mean),
            },
            calibration: self.report_calibration(),
        }
    }

    fn report_predicted(&self) -> Predicted {
        let Rows { answered, first_attempts, .. } = self.rows;
        let line = |(i, name): (usize, &&str)| {
            let [what_if, logged, logged_all] =
                self.predicted.each_ref().map(|column| known(&column.means[i]));
            Line { name: (*name).to_owned(), what_if, logged, logged_all }
        };
        let of = [answered, answered, first_attempts];
        Predicted {
            rows: answered,
            means: PREDICTED.iter().enumerate().map(line).collect(),
            models: shares(self.predicted.each_ref().map(|column| &column.models), of),
            instances: shares(self.predicted.each_ref().map(|column| &column.instances), of),
        }
    }

    fn report_observed(&self) -> Observed {
        let rows = self.rows.first_attempts;
        let covered = self.weights.rows() - self.unsupported;
        let coverage = if rows > 0 { covered as f64 / rows as f64 } else { 0.0 };
        let mean_weight = self.mean_weight.estimate();
        let cannot_answer = self.refusal(coverage, mean_weight);
        let least = self.rules.least_effective_rows;
        let judge = |new: &Moments| match &cannot_answer {
            Some(why) => Verdict::CannotAnswer(why.clone()),
            None if new.rows() == 0 => known(new),
            None if new.effective_rows() < least => Verdict::CannotAnswer(format!(
                "{:.0} effective rows hold it; at least {least:.0} are needed",
                new.effective_rows()
            )),
            None => known(new),
        };
        let line = |(i, name): (usize, &&str)| {
            let [new, logged, all] = self.observed.each_ref().map(|column| &column.means[i]);
            let name = (*name).to_owned();
            Line { name, what_if: judge(new), logged: known(logged), logged_all: known(all) }
        };
        Observed {
            coverage,
            unsupported: self.unsupported,
            mean_weight,
            effective_rows: self.weights.effective_rows(),
            means: OBSERVED.iter().enumerate().map(line).collect(),
            cannot_answer: cannot_answer.clone(),
        }
    }

    fn refusal(&self, coverage: f64, mean_weight: Option<Estimated>) -> Option<String> {
        let Rules { least_effective_rows, least_coverage, .. } = self.rules;
        let rows = self.rows.first_attempts;
        let percent = |part: u64| 100.0 * part as f64 / rows.max(1) as f64;
        let unknown = rows - self.weights.rows();
        if coverage < least_coverage {
            return Some(format!(
                "it covers {:.1}% of the rows and {:.1}% are needed: for {:.1}% nobody can tell what would be chosen, \
                 and {:.1}% change to a choice that the logged policy never made from the same state",
                100.0 * coverage,
                100.0 * least_coverage,
                percent(unknown),
                percent(self.unsupported),
            ));
        }
        match mean_weight {
            Some(mean) if mean.high < least_coverage => Some(format!(
                "the weights average {:.3} (at most {:.3}) where full support gives 1: the logged policy hardly ever \
                 made the new choices",
                mean.mean, mean.high
            )),
            _ if self.weights.effective_rows() < least_effective_rows => Some(format!(
                "the weights leave {:.0} effective rows; at least {least_effective_rows:.0} are needed",
                self.weights.effective_rows()
            )),
            _ => None,
        }
    }

    fn report_calibration(&self) -> Vec<Calibration> {
        let lines = CALIBRATED.iter().zip(&self.calibration).filter_map(|(&(name, relative), pair)| {
            Some(Calibration {
                name: name.to_owned(),
                rows: pair.difference.rows(),
                predicted: pair.predicted.estimate()?.mean,
                observed: pair.observed.estimate()?.mean,
                difference: pair.difference.estimate()?,
                relative_error: pair.relative.estimate().filter(|_| relative).map(|e| e.mean),
            })
        });
        lines.collect()
    }
}

impl Column<5> {
    /// Adds a choice; `instance`: it is known which, `timed`: the request had a target.
    fn predict(&mut self, candidate: &Candidate, (instance, timed): (bool, bool), prediction: &Prediction) {
        let in_time = candidate.feasible.filter(|_| instance && timed);
        let values = [
            prediction.utility,
            prediction.accuracy,
            prediction.cost_usd,
            candidate.ttft_s.filter(|_| instance),
            in_time.map(share),
        ];
        for (moments, value) in self.means.iter_mut().zip(values) {
            moments.add_known(1.0, value);
        }
        count(&mut self.models, &candidate.model);
        if instance {
            count(&mut self.instances, candidate.instance.as_str());
        }
    }
}

impl Column<7> {
    fn observe(&mut self, weight: f64, realised: &Realised) {
        let values = [
            realised.ttft_s,
            realised.attainment,
            realised.cost_usd,
            realised.output_tokens,
            Some(realised.failed),
            realised.on_time_utility,
            realised.on_time_utility_by_prediction,
        ];
        for (moments, value) in self.means.iter_mut().zip(values) {
            moments.add_known(weight, value);
        }
    }
}

fn known(moments: &Moments) -> Verdict {
    let none = || Verdict::CannotAnswer(String::from("no row holds it"));
    moments.estimate().map_or_else(none, Verdict::Estimate)
}

/// Returns each name's share of the rows of each column.
fn shares(counts: [&BTreeMap<String, u64>; 3], rows: [u64; 3]) -> Vec<Line> {
    let names: BTreeSet<&String> = counts.iter().flat_map(|counts| counts.keys()).collect();
    let line = |name: &String| {
        let of = |column: usize| {
            let count = counts[column].get(name).copied().unwrap_or(0);
            known(&Moments::of_share(count, rows[column]))
        };
        Line { name: name.clone(), what_if: of(NEW), logged: of(LOGGED), logged_all: of(ALL) }
    };
    names.into_iter().map(line).collect()
}

fn share(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(name.to_owned(), 1)),
    }
}
