//! Which instances may serve a query at all: context length, inputs, abilities, the client's bounds,
//! and whether the instance is up (DESIGN §1).

use crate::domain::{
    CountSource, Ineligible, InstanceView, ModelIndex, ModelSpec, Named, Prediction, PromptCount, Query,
};

/// Returns why a model may not serve the query, by what it is; absent: it may.
pub(super) fn by_model(
    query: &Query,
    index: ModelIndex,
    model: &ModelSpec,
    prompt: PromptCount,
) -> Option<Ineligible> {
    if matches!(query.named, Named::Model(named) if named != index) {
        return Some(Ineligible::OtherModel);
    }
    if let Some(too_long) = by_context(query, prompt, model.max_model_len_tokens) {
        return Some(too_long);
    }
    let missing = query
        .needs
        .modalities
        .iter()
        .find(|kind| kind.as_str() != "text" && !model.capabilities.modalities.contains(*kind));
    if let Some(modality) = missing {
        return Some(Ineligible::Modality { modality: modality.clone() });
    }
    if query.needs.tools && !model.capabilities.tools {
        return Some(Ineligible::Tools);
    }
    (query.needs.structured_output && !model.capabilities.structured_output)
        .then_some(Ineligible::StructuredOutput)
}

/// Returns why an instance may not serve the query, by the context length its engine runs with.
pub(super) fn by_engine(query: &Query, view: &InstanceView, prompt: PromptCount) -> Option<Ineligible> {
    by_context(query, prompt, view.basis.as_ref()?.snapshot.engine.max_model_len)
}

/// The longest prompt and the output asked for, at least one token of it, must fit.
///
/// An estimate by bytes excludes nothing: it may be off by a factor, and the engine itself refuses what
/// does not fit.
fn by_context(query: &Query, prompt: PromptCount, max_model_len_tokens: u32) -> Option<Ineligible> {
    if prompt.source == CountSource::Bytes {
        return None;
    }
    let needed_tokens = prompt.longest_tokens.saturating_add(query.max_output_tokens.unwrap_or(1).max(1));
    (needed_tokens > max_model_len_tokens)
        .then_some(Ineligible::ContextLength { needed_tokens, max_model_len_tokens })
}

/// Returns why an instance may not serve the query, by the client's bounds on predictions.
///
/// A bound is a promise: what is not predicted cannot be shown to keep it.
pub(super) fn by_bounds(query: &Query, prediction: &Prediction) -> Option<Ineligible> {
    let unknown = |bound: &str| Some(Ineligible::UnknownPrediction { bound: bound.to_owned() });
    match (query.bounds.min_accuracy, prediction.accuracy) {
        (Some(min_accuracy), Some(accuracy)) if accuracy < min_accuracy => {
            return Some(Ineligible::MinAccuracy { accuracy, min_accuracy });
        }
        (Some(_), None) => return unknown("min_accuracy"),
        _ => {}
    }
    match (query.bounds.max_cost_usd, prediction.cost_usd) {
        (Some(max_cost_usd), Some(cost_usd)) if cost_usd > max_cost_usd => {
            Some(Ineligible::MaxCost { cost_usd, max_cost_usd })
        }
        (Some(_), None) => unknown("max_cost_usd"),
        _ => None,
    }
}

/// Returns why an instance may not be chosen now: it failed this query before, or it is not usable.
pub(super) fn by_state(view: &InstanceView, excluded: bool) -> Option<Ineligible> {
    let why = match view.usable {
        _ if excluded => "already failed this request",
        Ok(()) => return None,
        Err(why) => why,
    };
    Some(Ineligible::Unusable { why: why.to_owned() })
}
