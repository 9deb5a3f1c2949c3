//! What each model will make of the query: accuracy, length, cost, utility (eq. 4).

use super::Described;
use crate::{
    domain::{
        CountSource, InstanceSpec, ModelIndex, ModelSpec, Named, Prediction, PromptCount, Query, QueryLoad,
    },
    pool::Pool,
    predict::{self, ModelPrediction, PredictionSource, Predictor},
};

/// One model's predictions, before any instance's price.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelView {
    pub(super) prompt: PromptCount,
    /// Predicted accuracy in `[0,1]`; absent: unknown.
    pub(super) accuracy: Option<f64>,
    /// Predicted output tokens of one answer, clamped; absent: unknown.
    pub(super) output_tokens: Option<f64>,
    /// Where they come from.
    pub(super) source: &'static str,
    /// The work on an instance of the model.
    pub(super) load: QueryLoad,
}

impl ModelView {
    /// Returns it with the work cut to one sequence that leaves room for an output token.
    ///
    /// Several prompts, or a guess by bytes, may sum to more; they are estimated as the longest sequence
    /// that the instance takes.
    pub(super) fn within(mut self, most_tokens: u32) -> Self {
        self.load.prompt_tokens = self.load.prompt_tokens.min(most_tokens.saturating_sub(1)).max(1);
        self
    }
}

/// Predicts for every model of the pool, in its order; of a request that names one, for that one only.
///
/// A length is clamped to the client's cap and to what the context leaves, and is at least 1. Where none
/// is predicted, the work still needs one: the pool's expectation stands in, and the prediction stays
/// unknown.
pub(super) fn predict(pool: &Pool, predictor: &Predictor, described: &Described) -> Vec<ModelView> {
    let query = &described.query;
    let models = pool.models();
    let predicted: Vec<Option<ModelPrediction>> = match (&described.given, &described.features, query.named) {
        (Some(given), ..) => (0..models.len()).map(|m| given.get(m).copied()).collect(),
        (None, None, _) => vec![None; models.len()],
        (None, Some(features), Named::Virtual) => {
            predictor.predict_all(features, models).into_iter().map(Some).collect()
        }
        (None, Some(features), Named::Model(named)) => models
            .iter()
            .enumerate()
            .map(|(m, model)| (named.0 == m).then(|| predictor.predict(features, model)))
            .collect(),
    };
    let views = predicted.into_iter().zip(models).enumerate();
    views.map(|(m, (predicted, model))| view(pool, query, ModelIndex(m), predicted, model)).collect()
}

/// Returns one model's predictions; without features its prior stands in.
fn view(
    pool: &Pool,
    query: &Query,
    index: ModelIndex,
    predicted: Option<ModelPrediction>,
    model: &ModelSpec,
) -> ModelView {
    let prompt = prompt_count(query, index);
    let prior = PredictionSource::Prior;
    let (accuracy, length, source) = match predicted {
        Some(predicted) => (predicted.accuracy, predicted.output_tokens, predicted.source),
        None => (model.prior_accuracy, model.prior_output_tokens, prior),
    };
    let accuracy = accuracy.filter(|accuracy| accuracy.is_finite());
    let room = model.max_model_len_tokens.saturating_sub(prompt.longest_tokens).max(1);
    let most = f64::from(query.max_output_tokens.unwrap_or(room).clamp(1, room));
    let output_tokens = length.filter(|tokens| tokens.is_finite()).map(|tokens| tokens.clamp(1.0, most));
    let known = accuracy.is_some() || output_tokens.is_some();
    let expected =
        output_tokens.unwrap_or_else(|| pool.expected_output_tokens(index, prompt.tokens).clamp(1.0, most));
    let load = QueryLoad {
        prompt_tokens: prompt.tokens.max(1),
        cached_tokens: 0,
        cached_blocks_in_use: 0,
        output_tokens: expected.ceil() as u32,
        priority: query.priority,
    };
    let source = if known { source.label() } else { PredictionSource::Unknown.label() };
    ModelView { prompt, accuracy, output_tokens, source, load }
}

/// Adds one instance's price: cost of all answers, and U = accuracy − λ·cost (eq. 4).
pub(super) fn price(query: &Query, model: &ModelView, spec: &InstanceSpec) -> Prediction {
    let answers = f64::from(query.choices.max(1));
    let cost_usd = model.output_tokens.map(|tokens| {
        predict::cost_usd(&spec.price, model.prompt.tokens, model.load.cached_tokens, tokens * answers)
    });
    let utility = match (model.accuracy, cost_usd) {
        (Some(accuracy), Some(cost)) => Some(accuracy - query.tradeoff.lambda_per_usd * cost),
        _ => None,
    };
    Prediction { accuracy: model.accuracy, output_tokens: model.output_tokens, cost_usd, utility }
}

/// Returns the prompt's size under a model; a size nobody gave is 0 tokens by bytes.
pub(super) fn prompt_count(query: &Query, index: ModelIndex) -> PromptCount {
    let none = PromptCount::one(0, CountSource::Bytes);
    query.prompts.get(index.0).copied().unwrap_or(none)
}
