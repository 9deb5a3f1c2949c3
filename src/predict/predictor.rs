//! One loaded bundle, or the prior: from a prompt to predictions per model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    BpeTokens, Forest, PredictError, QueryFeatures,
    bundle::Bundle,
    features::{self, PROMPT_FEATURES},
    manifest::Manifest,
};
use crate::domain::ModelSpec;

/// Where a predicted number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PredictionSource {
    /// The trained models of the bundle.
    Bundle,
    /// The mean that the configuration states for the model.
    Prior,
    /// Nothing is known.
    Unknown,
}

impl PredictionSource {
    /// Returns the label used in decisions and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Prior => "prior",
            Self::Unknown => "unknown",
        }
    }
}

/// What one model is predicted to make of one prompt, before any client's cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelPrediction {
    /// Accuracy between 0 and 1; absent: unknown.
    pub accuracy: Option<f64>,
    /// Output tokens, at least 1; absent: unknown.
    pub output_tokens: Option<f64>,
    /// Where the accuracy comes from.
    pub source: PredictionSource,
    /// Where the output tokens come from.
    pub output_tokens_source: PredictionSource,
}

/// Predicts accuracy and output tokens per model: a loaded bundle, or the prior alone.
///
/// Immutable and shareable; swap the whole of it to change the bundle.
pub struct Predictor(Kind);

enum Kind {
    Bundle(Box<Bundle>),
    /// No trees. Prompts are still described, so that rows logged under the prior can train a first bundle.
    Prior(BpeTokens),
}

impl Predictor {
    /// Loads a bundle from its files by name, all of them checked.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn from_bundle(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, PredictError> {
        Ok(Self(Kind::Bundle(Box::new(Bundle::read(files)?))))
    }

    /// Returns the predictor that knows nothing but what each model's specification states.
    #[must_use]
    pub fn prior() -> Self {
        Self(Kind::Prior(BpeTokens::built_in()))
    }

    /// Returns whether the bundle was trained on generated evaluations.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        self.manifest().is_some_and(|manifest| manifest.synthetic)
    }

    /// Returns `name@digest` of the bundle, or `prior`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.bundle().map_or("prior", |bundle| &bundle.version)
    }

    /// Returns the bundle's manifest; none for the prior.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.bundle().map(|bundle| &bundle.manifest)
    }

    /// Returns whether the bundle has learned `model`.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        self.bundle().is_some_and(|bundle| bundle.categories.contains_key(model))
    }

    /// Describes a prompt under this predictor's feature tokenizer.
    #[must_use]
    pub fn describe(&self, prompt: &str) -> QueryFeatures {
        match &self.0 {
            Kind::Bundle(bundle) => features::describe(prompt, &bundle.tokens),
            Kind::Prior(tokens) => features::describe(prompt, tokens),
        }
    }

    /// Predicts for one model. A model that the bundle has not learned gets its prior, labelled so.
    ///
    /// Features of another version than the bundle's (described before a swap) also fall back to the prior.
    #[must_use]
    pub fn predict(&self, features: &QueryFeatures, model: &ModelSpec) -> ModelPrediction {
        let prompt = self.prompt_vector(features);
        self.predict_spec(prompt.as_ref(), model)
    }

    /// Predicts for every model that the bundle has learned, in its order; for none under the prior.
    #[must_use]
    pub fn predict_learned(&self, features: &QueryFeatures) -> Vec<(&str, ModelPrediction)> {
        let prompt = self.prompt_vector(features);
        let models = self.manifest().map_or(&[][..], |manifest| &manifest.models);
        let predict = |id: &str| self.predict_model(prompt.as_ref(), id, None, None);
        models.iter().map(|model| (model.id.as_str(), predict(&model.id))).collect()
    }

    /// Predicts for several models, in their order; the prompt is projected once.
    #[must_use]
    pub fn predict_all(&self, features: &QueryFeatures, models: &[ModelSpec]) -> Vec<ModelPrediction> {
        let prompt = self.prompt_vector(features);
        models.iter().map(|model| self.predict_spec(prompt.as_ref(), model)).collect()
    }

    fn bundle(&self) -> Option<&Bundle> {
        match &self.0 {
            Kind::Bundle(bundle) => Some(bundle),
            Kind::Prior(_) => None,
        }
    }

    fn prompt_vector(&self, features: &QueryFeatures) -> Option<[f64; PROMPT_FEATURES]> {
        let bundle = self.bundle()?;
        (features.version() == bundle.manifest.features.version).then(|| features.prompt_vector(&bundle.pca))
    }

    fn predict_spec(&self, prompt: Option<&[f64; PROMPT_FEATURES]>, model: &ModelSpec) -> ModelPrediction {
        self.predict_model(prompt, model.id.as_str(), model.prior_accuracy, model.prior_output_tokens)
    }

    fn predict_model(
        &self,
        prompt: Option<&[f64; PROMPT_FEATURES]>,
        model: &str,
        prior_accuracy: Option<f64>,
        prior_output_tokens: Option<f64>,
    ) -> ModelPrediction {
        let learned = self.bundle().zip(prompt).and_then(|(bundle, prompt)| {
            let category = *bundle.categories.get(model)?;
            Some((bundle, prompt, category, bundle.manifest.models.get(category as usize)?))
        });
        let accuracy = learned.map(|(bundle, prompt, category, known)| {
            let row = features::accuracy_row(prompt, category, known.parameters_b, known.max_model_len);
            bundle.accuracy.predict(&row).clamp(0.0, 1.0)
        });
        let output_tokens = learned.and_then(|(bundle, prompt, category, known)| {
            let forest: &Forest =
                bundle.output_length.as_ref().filter(|_| known.rows_with_output_tokens > 0)?;
            Some(forest.predict(&features::output_length_row(prompt, category)).max(1.0))
        });
        let (accuracy, source) = or_prior(accuracy, prior_accuracy);
        let (output_tokens, output_tokens_source) = or_prior(output_tokens, prior_output_tokens);
        ModelPrediction { accuracy, output_tokens, source, output_tokens_source }
    }
}

fn or_prior(learned: Option<f64>, prior: Option<f64>) -> (Option<f64>, PredictionSource) {
    match (learned, prior) {
        (Some(value), _) => (Some(value), PredictionSource::Bundle),
        (None, Some(value)) => (Some(value), PredictionSource::Prior),
        (None, None) => (None, PredictionSource::Unknown),
    }
}
