//! What each model will make of the query: accuracy, length, cost, utility (eq. 4).

use super::Described;
use crate::{
    domain::{InstanceSpec, ModelIndex, Prediction, PromptCount, Query, QueryLoad},
    pool::Pool,
    predict::{self, Predictor},
};

/// One model's predictions, before any instance's price.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelView {
    pub(super) prompt: PromptCount,
    /// Predicted accuracy in [0,1]; absent: unknown.
    pub(super) accuracy: Option<f64>,
    /// Predicted output tokens of one answer, clamped; absent: unknown.
    pub(super) output_tokens: Option<f64>,
    /// Where they come from.
    pub(super) source: &'static str,
    /// The work on an instance of the model.
    pub(super) load: QueryLoad,
}

/// Predicts for one model.
///
/// The length is clamped to the client's cap and to what the context leaves, and is at least 1. Where
/// no length is predicted, the work still needs one: the pool's expectation stands in, and the
/// prediction stays unknown.
pub(super) fn predict_model(
    pool: &Pool,
    predictor: &Predictor,
    described: &Described,
    index: ModelIndex,
) -> ModelView {
    let query = &described.query;
    let model = &pool.models()[index.0];
    let prompt = prompt_count(query, index);
    let (accuracy, length, source) = match &described.features {
        Some(features) => {
            let predicted = predictor.predict(features, model);
            (predicted.accuracy, predicted.output_tokens, predicted.source.label())
        }
        None => {
            let known = model.prior_accuracy.is_some() || model.prior_output_tokens.is_some();
            (model.prior_accuracy, model.prior_output_tokens, if known { "prior" } else { "unknown" })
        }
    };
    let room = model.max_model_len_tokens.saturating_sub(prompt.tokens).max(1);
    let most = f64::from(query.max_output_tokens.unwrap_or(room).clamp(1, room));
    let output_tokens = length.filter(|tokens| tokens.is_finite()).map(|tokens| tokens.clamp(1.0, most));
    let accuracy = accuracy.filter(|accuracy| accuracy.is_finite());
    let expected =
        output_tokens.unwrap_or_else(|| pool.expected_output_tokens(index, prompt.tokens).clamp(1.0, most));
    let load = QueryLoad {
        prompt_tokens: prompt.tokens.max(1),
        cached_tokens: 0,
        cached_blocks_in_use: 0,
        output_tokens: expected.ceil() as u32,
        priority: query.priority,
    };
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
    let none = PromptCount { tokens: 0, source: crate::domain::CountSource::Bytes };
    query.prompts.get(index.0).copied().unwrap_or(none)
}
