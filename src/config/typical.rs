//! What the configured λ means in practice: each model's utility for a short and a long typical request.

use super::Checked;
use crate::predict::cost_usd;

/// A request that many pools see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typical {
    /// What it is, for a table's head.
    pub name: &'static str,
    /// The start of the prompt.
    opening: &'static str,
    /// What follows it, this many times.
    body: (&'static str, usize),
}

/// A question of a line, and a report of some thousand words to be summed up.
pub const TYPICAL: [Typical; 2] = [
    Typical {
        name: "short",
        opening: "What is the capital of Australia, and how did it come to be chosen? Answer in two sentences.",
        body: ("", 0),
    },
    Typical {
        name: "long",
        opening: "Write a one-page summary of the following report.\n\n",
        body: (
            "The committee reviewed the programme's spending for the year, compared it with the plan of the \
             year before, and found that delays at three of the seven sites explain most of the difference. ",
            110,
        ),
    },
];

impl Typical {
    /// Returns the prompt.
    #[must_use]
    pub fn prompt(&self) -> String {
        let (text, times) = self.body;
        self.opening.to_owned() + &text.repeat(times)
    }
}

/// One model's prediction for a typical request.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelUtility {
    /// The model.
    pub model: String,
    /// Predicted accuracy in `[0,1]`; absent: unknown.
    pub accuracy: Option<f64>,
    /// Predicted output tokens; absent: unknown.
    pub output_tokens: Option<f64>,
    /// Predicted cost at the model's price, USD; absent: length unknown.
    pub cost_usd: Option<f64>,
    /// Utility at the λ in force (eq. 4); absent: accuracy or cost unknown.
    pub utility: Option<f64>,
}

/// Bytes a token of English under a large vocabulary; the models' own tokenizers are not needed here.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the prompt's tokens, about, and each model's prediction, in the pool's model order.
#[must_use]
pub fn utilities(checked: &Checked, typical: &Typical) -> (u32, Vec<ModelUtility>) {
    let prompt = typical.prompt();
    let tokens = u32::try_from(prompt.len() / BYTES_PER_TOKEN).unwrap_or(u32::MAX);
    let features = checked.predictor.describe(&prompt);
    let lambda_per_usd = checked.config.routing.lambda_per_usd;
    let predictions = checked.predictor.predict_all(&features, &checked.models);
    let rows = checked.models.iter().zip(predictions).map(|(model, prediction)| {
        let cost = prediction.output_tokens.map(|output| cost_usd(&model.price, tokens, 0, output));
        let utility = prediction.accuracy.zip(cost).map(|(accuracy, cost)| accuracy - lambda_per_usd * cost);
        ModelUtility {
            model: model.id.to_string(),
            accuracy: prediction.accuracy,
            output_tokens: prediction.output_tokens,
            cost_usd: cost,
            utility,
        }
    });
    (tokens, rows.collect())
}

/// Returns the models that another one beats in every one of the given requests, each with that other:
/// they are chosen only where the better one would be late or may not serve.
#[must_use]
pub fn outshone(requests: &[Vec<ModelUtility>]) -> Vec<(String, String)> {
    let Some(first) = requests.first() else { return Vec::new() };
    let better = |a: usize, b: usize| {
        let ahead =
            |rows: &Vec<ModelUtility>| rows[a].utility.zip(rows[b].utility).is_some_and(|(a, b)| a > b);
        requests.iter().all(ahead)
    };
    let beaten = |b: &usize| (0..first.len()).find(|a| better(*a, *b));
    let pairs = (0..first.len()).filter_map(|b| beaten(&b).map(|a| (b, a)));
    pairs.map(|(b, a)| (first[b].model.clone(), first[a].model.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str, utility: Option<f64>) -> ModelUtility {
        ModelUtility { model: model.into(), accuracy: None, output_tokens: None, cost_usd: None, utility }
    }

    #[test]
    fn a_model_is_outshone_only_by_one_that_wins_every_time() {
        let short = vec![row("a", Some(0.5)), row("b", Some(0.6)), row("c", Some(0.7)), row("d", None)];
        let long = vec![row("a", Some(0.1)), row("b", Some(0.2)), row("c", Some(0.0)), row("d", None)];
        assert_eq!(outshone(&[short, long]), [("a".to_owned(), "b".to_owned())]);
        assert_eq!(outshone(&[]), []);
    }
}
