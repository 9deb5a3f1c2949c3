//! What-if: logged decisions under another λ, δ, policy, pool or price.
//!
//! [`Study`] reads rows one at a time and keeps sums only. Of each row it rebuilds the candidates as they were
//! logged, lets the new policy choose, and adds the row to two blocks that never mix: *predicted* (what the log
//! had predicted for the new choice) and *observed* (outcomes of the rows whose choice stays, weighted by how
//! likely each policy was to make it). What a row does not hold is filled in several contradictory ways
//! (`world`); a choice that depends on the filling is one that the log cannot answer.

mod answer;
mod candidates;
mod column;
mod moments;
mod realised;
mod report;
mod roster;
mod study;
#[cfg(test)]
mod tests;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub use answer::{Answer, Chosen, Replayer, Why};
pub use moments::{Estimated, Moments};
pub use report::{Agreement, Calibration, Known, Line, Observed, Predicted, Report, Rows, Verdict};
pub use study::{Rules, Study};

use crate::{
    domain::{Candidate, Decision, Outcome, Prediction, Price, Query},
    policy::PolicyConfig,
    predict,
};

/// A settled attempt as the log kept it.
#[derive(Clone, Debug)]
pub struct LoggedRow {
    /// The decision table.
    pub decision: Decision,
    /// What was asked; model, prompts, weights and prefix are taken from the decision, not from here.
    pub query: Query,
    /// What became of it.
    pub outcome: Outcome,
    /// The answer's score in `[0,1]`; absent: nobody judged it.
    pub score: Option<f64>,
}

impl LoggedRow {
    /// Returns the logged choice's place in the table.
    #[must_use]
    pub fn chosen(&self) -> Option<usize> {
        self.decision.candidates.iter().position(|candidate| candidate.chosen)
    }
}

/// What is to be different; what is absent stays as each row has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// λ of eq. 4, per USD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda_per_usd: Option<f64>,
    /// δ of eq. 7, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_per_s: Option<f64>,
    /// The policy; absent: the one that each row names, with its default options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyConfig>,
    /// Instances, or models for all of theirs, that are taken out of the pool.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<String>,
    /// Instances, or models for all of theirs, that alone are in the pool; empty: all.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub only: BTreeSet<String>,
    /// Prices by model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, Price>,
    /// What stands for a TTFT that was never estimated, in the predicted block alone.
    pub unestimated: Unestimated,
}

/// What stands for a TTFT that was never estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unestimated {
    /// Nothing: a choice that needs it is not answered.
    #[default]
    Refuse,
    /// In time for any target.
    InTime,
    /// Late for any target.
    Late,
}

impl Change {
    /// Returns whether a candidate is in the pool.
    fn keeps(&self, candidate: &Candidate) -> bool {
        let named = |names: &BTreeSet<String>| {
            names.contains(candidate.instance.as_str()) || names.contains(&candidate.model)
        };
        !named(&self.without) && (self.only.is_empty() || named(&self.only))
    }

    /// Returns λ for a row.
    fn lambda_per_usd(&self, row: &LoggedRow) -> f64 {
        self.lambda_per_usd.unwrap_or(row.decision.lambda_per_usd)
    }

    /// Predicts for a candidate anew: accuracy and length as logged, cost at the new price where there is one,
    /// U = accuracy − λ·cost (eq. 4).
    fn predict(&self, row: &LoggedRow, candidate: &Candidate) -> Prediction {
        let cost_usd = match self.prices.get(&candidate.model) {
            None => candidate.cost_usd,
            Some(price) => candidate.output_tokens.map(|tokens| {
                let answers = f64::from(row.query.choices.max(1));
                predict::cost_usd(price, candidate.prompt_tokens, 0, tokens * answers)
            }),
        };
        let utility = match (candidate.accuracy, cost_usd) {
            (Some(accuracy), Some(cost_usd)) => Some(accuracy - self.lambda_per_usd(row) * cost_usd),
            _ => None,
        };
        Prediction { accuracy: candidate.accuracy, output_tokens: candidate.output_tokens, cost_usd, utility }
    }
}
