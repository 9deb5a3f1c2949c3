//! What came of a logged choice, in the quantities that a what-if compares.

use super::{Change, LoggedRow};
use crate::{
    domain::{Ending, Endpoint, Price},
    predict,
};

/// The realised side of a row; an absent value was not observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Realised {
    /// Of a streamed answer, seconds.
    pub(super) ttft_s: Option<f64>,
    /// Whether the target was met, 1 or 0; absent without one or where nobody could see it.
    pub(super) attainment: Option<f64>,
    /// At the new price where there is one, USD.
    pub(super) cost_usd: Option<f64>,
    pub(super) output_tokens: Option<f64>,
    /// Whether no answer came, 1 or 0.
    pub(super) failed: f64,
    /// Whether a whole answer came in time, 1 or 0; absent where nobody could see it.
    pub(super) on_time: Option<f64>,
    /// Score − λ·cost of an answer in time; absent: it was late or failed and counts 0, or a part is not known.
    pub(super) utility_in_time: Option<f64>,
    /// The same with the predicted accuracy for the score.
    pub(super) utility_in_time_by_prediction: Option<f64>,
}

/// Returns what came of the logged choice, valued at the change's λ and prices.
pub(super) fn realised(row: &LoggedRow, change: &Change) -> Realised {
    let outcome = &row.outcome;
    let chosen = row.decision.chosen();
    let price = chosen.and_then(|chosen| change.prices.get(&chosen.model));
    let cost_usd = match price {
        None => outcome.cost_usd,
        Some(price) => cost(row, price),
    };
    let failed = matches!(outcome.ending, Ending::Failed | Ending::TimedOut);
    let attainment = attainment(row);
    let on_time = match (attainment, row.decision.ttft_target_ms) {
        _ if failed => Some(false),
        (Some(met), _) => Some(met > 0.0),
        (None, Some(_)) => None,
        (None, None) => Some(outcome.ending == Ending::Complete || outcome.ttft_s.is_some()),
    };
    let lambda = change.lambda_per_usd(row);
    let utility = |score: Option<f64>| if on_time? { Some(score? - lambda * cost_usd?) } else { None };
    Realised {
        ttft_s: outcome.ttft_s.filter(|_| observable(row)),
        attainment,
        cost_usd,
        output_tokens: outcome.output_tokens.map(f64::from),
        failed: if failed { 1.0 } else { 0.0 },
        on_time: on_time.map(|yes| if yes { 1.0 } else { 0.0 }),
        utility_in_time: utility(row.score),
        utility_in_time_by_prediction: utility(chosen.and_then(|chosen| chosen.accuracy)),
    }
}

fn cost(row: &LoggedRow, price: &Price) -> Option<f64> {
    let outcome = &row.outcome;
    let cached_tokens = outcome.cached_tokens.unwrap_or(0);
    let output_tokens = f64::from(outcome.output_tokens?);
    Some(predict::cost_usd(price, outcome.prompt_tokens?, cached_tokens, output_tokens))
}

/// Only the first token of a streamed chat or completion can be seen.
fn observable(row: &LoggedRow) -> bool {
    row.query.streamed && matches!(row.query.endpoint, Endpoint::Chat | Endpoint::Completions)
}

/// Returns 1 for a target met and 0 for one missed, as the gateway counts them: a client that left before the
/// target's end shows neither.
fn attainment(row: &LoggedRow) -> Option<f64> {
    let target_s = row.decision.ttft_target_ms? / 1e3;
    let outcome = &row.outcome;
    let left = outcome.ending == Ending::Cancelled && outcome.e2e_s <= target_s;
    match outcome.ttft_s {
        _ if !observable(row) => None,
        Some(ttft_s) if ttft_s <= target_s => Some(1.0),
        None if left => None,
        _ => Some(0.0),
    }
}
