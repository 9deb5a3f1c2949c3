//! The sums of a what-if: rows go in one at a time, a [`Report`] comes out.

use super::{
    Agreement, Answer, Calibration, Change, Chosen, Estimated, LoggedRow, Moments, Observed, Predicted,
    Replayer, Report, Rows, Verdict,
    column::{Column, OBSERVED, OBSERVED_SUMS, Told, count, line, predicted, shares},
    realised::{Realised, realised},
};
use crate::{
    domain::{Candidate, Reason},
    lab::LabError,
};

/// When the observed block refuses, and how rows are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Least effective rows of an observed estimate.
    pub least_effective_rows: f64,
    /// Least share of rows with a known weight and a supported choice, in `[0,1]`; the mean weight may be as
    /// far from 1, either way.
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

const CALIBRATED: [(&str, bool); 4] =
    [("ttft_s", true), ("attainment", false), ("cost_usd", true), ("output_tokens", true)];

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
    observed: [Column<OBSERVED_SUMS>; 3],
    weights: Moments,
    mean_weight: Moments,
    unsupported: u64,
    same_instance: u64,
    same_model: u64,
    reproduced: u64,
    /// Rows of which the log cannot tell whether its own policy, replayed unchanged, chooses alike.
    not_replayed: u64,
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
            reproduced: 0,
            not_replayed: 0,
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
            Ok(Answer { of_logged: Some(of_logged), .. }) => self.reproduced += u64::from(of_logged > 0.0),
            Ok(_) => self.not_replayed += 1,
            Err(_) => self.same = None,
        }
    }

    /// Returns what was found so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let answered = self.rows.answered;
        let part = |count: u64| (answered > 0).then(|| count as f64 / answered as f64);
        let rows = self.rows.first_attempts;
        let replayed = self.same.is_some() && rows > 0;
        let of_all = |count: u64| replayed.then(|| count as f64 / rows as f64);
        Report {
            change: self.new.change().clone(),
            rows: self.rows.clone(),
            predicted: self.report_predicted(),
            observed: self.report_observed(),
            agreement: Agreement {
                same_instance: part(self.same_instance),
                same_model: part(self.same_model),
                reproduced: of_all(self.reproduced),
                not_replayed: of_all(self.not_replayed),
            },
            calibration: self.report_calibration(),
        }
    }

    fn report_predicted(&self) -> Predicted {
        Predicted {
            rows: self.rows.answered,
            means: predicted(&self.predicted),
            models: shares(&self.predicted, false),
            instances: shares(&self.predicted, true),
        }
    }

    fn report_observed(&self) -> Observed {
        let rows = self.rows.first_attempts;
        let covered = self.weights.rows() - self.unsupported;
        let coverage = if rows > 0 { covered as f64 / rows as f64 } else { 0.0 };
        let mean_weight = self.mean_weight.estimate();
        let cannot_answer = self.refusal(coverage, mean_weight);
        let least = self.rules.least_effective_rows;
        let judge = |new: &Told| match (&cannot_answer, &new.estimate) {
            (Some(why), _) => Verdict::CannotAnswer(why.clone()),
            (None, Some(new)) if new.effective_rows < least => Verdict::CannotAnswer(format!(
                "{:.0} effective rows hold it; at least {least:.0} are needed",
                new.effective_rows
            )),
            _ => new.verdict(),
        };
        let means = OBSERVED
            .iter()
            .enumerate()
            .map(|(i, name)| line(name, &self.observed.each_ref().map(|column| column.told(i)), judge));
        Observed {
            coverage,
            unsupported: self.unsupported,
            mean_weight,
            effective_rows: self.weights.effective_rows(),
            means: means.collect(),
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
            Some(mean) if mean.low > 2.0 - least_coverage => Some(format!(
                "the weights average {:.3} (at least {:.3}) where true propensities give 1: the logged policy chose as it \
                 did more often than the log says",
                mean.mean, mean.low
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

fn share(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}
