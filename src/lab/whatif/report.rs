//! What a what-if found, as data: predicted and observed apart, with the reasons for what is missing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Change, Estimated};

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was changed.
    pub change: Change,
    /// Rows by what could be done with them.
    pub rows: Rows,
    /// What had been predicted, for the new choices and for the logged ones.
    pub predicted: Predicted,
    /// What came of it: weighted for the new choices, as it was for the logged ones.
    pub observed: Observed,
    /// How often both choose alike.
    pub agreement: Agreement,
    /// Predicted against observed on the logged choices: how far the predicted block can be believed.
    pub calibration: Vec<Calibration>,
}

/// Rows by what could be done with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rows {
    /// First attempts with a decision table: all that shares below are shares of.
    pub first_attempts: u64,
    /// Later attempts, left out: their pool had lost an instance to the attempt before.
    pub later_attempts: u64,
    /// Rows without a decision table, left out.
    pub without_decision: u64,
    /// First attempts by the policy that made them.
    pub policies: BTreeMap<String, u64>,
    /// First attempts by the predictor behind them.
    pub predictors: BTreeMap<String, u64>,
    /// Rows whose new choice the log can tell.
    pub answered: u64,
    /// Of these, rows where only its model is known.
    pub answered_by_model: u64,
    /// Of the answered, rows that rest on what stands for a TTFT never estimated.
    pub answered_by_assumption: u64,
    /// Rows it cannot, by reason (kebab case).
    pub unanswered: BTreeMap<String, u64>,
}

/// A quantity of the new choices beside the logged ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Of the new choices; absent: unknown for every row.
    pub what_if: Verdict,
    /// Of the logged choices on the same rows.
    pub logged: Verdict,
    /// Of the logged choices on all first attempts.
    pub logged_all: Verdict,
    /// How much of each column holds it; absent for shares of names, which every row holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
}

/// How much of each column of a line holds its quantity: parts of the column's weight, in `[0,1]`. What is missing
/// is seldom missing by chance: a request that failed has no TTFT, one that nobody judged no score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Known {
    /// Of the new choices.
    pub what_if: f64,
    /// Of the logged choices on the same rows.
    pub logged: f64,
    /// Of the logged choices on all first attempts.
    pub logged_all: f64,
}

/// An estimate, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The estimate.
    Estimate(Estimated),
    /// Why the log cannot give one.
    CannotAnswer(String),
}

impl Verdict {
    /// Returns the estimate, where there is one.
    #[must_use]
    pub const fn estimate(&self) -> Option<&Estimated> {
        match self {
            Self::Estimate(estimate) => Some(estimate),
            Self::CannotAnswer(_) => None,
        }
    }
}

/// What had been predicted, over the rows whose new choice the log can tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Those rows.
    pub rows: u64,
    /// Means over them.
    pub means: Vec<Line>,
    /// Share of them a model.
    pub models: Vec<Line>,
    /// Share of them an instance; where only the model is known, none.
    pub instances: Vec<Line>,
}

/// What came of it, over the rows whose weight is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observed {
    /// Share of first attempts whose weight is known and whose new choice the logged policy may have made.
    pub coverage: f64,
    /// Rows whose new choice the logged policy never made from the same state.
    pub unsupported: u64,
    /// Mean weight; 1 where every new choice has support.
    pub mean_weight: Option<Estimated>,
    /// `(Σw)² / Σw²` over the rows whose weight is known.
    pub effective_rows: f64,
    /// Why no quantity can be told; absent: some can.
    pub cannot_answer: Option<String>,
    /// Means.
    pub means: Vec<Line>,
}

/// How often both choose alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Share with the same instance, of the rows whose new choice the log can tell.
    pub same_instance: Option<f64>,
    /// Share with the same model, of those rows.
    pub same_model: Option<f64>,
    /// Share of all first attempts whose choice the log's own policy, replayed with nothing changed, makes again;
    /// absent: it could not be replayed.
    pub reproduced: Option<f64>,
    /// Share of all first attempts of which the log cannot tell that; absent as above.
    pub not_replayed: Option<f64>,
}

/// One quantity of the logged choices, predicted against observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Its name.
    pub name: String,
    /// Rows where both are known.
    pub rows: u64,
    /// Mean predicted.
    pub predicted: f64,
    /// Mean observed.
    pub observed: f64,
    /// Mean of predicted − observed; an interval that spans 0 shows no bias.
    pub difference: Estimated,
    /// Mean of |predicted − observed| / observed; absent for shares.
    pub relative_error: Option<f64>,
}
