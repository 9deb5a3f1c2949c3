//! A bundle's `manifest.json`: what is in it, what it was made from, how good it was on held-out rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    features,
    shape::{COMPONENTS, HASH_BUCKETS},
};

/// The schema every manifest carries.
pub const SCHEMA: &str = "bear.bundle.v1";

/// A bundle's table of contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// A short name, such as `demo`.
    pub name: String,
    /// Trained on generated evaluations: `bear serve` refuses it unless told otherwise.
    pub synthetic: bool,
    /// The program and version that wrote it.
    pub made_by: String,
    /// The features it was trained on.
    pub features: FeatureManifest,
    /// The models it knows, by category.
    pub models: Vec<BundleModel>,
    /// Every other file, by name.
    pub files: BTreeMap<String, FileDigest>,
    /// The evaluations it was trained on.
    pub data: DataSummary,
    /// The trainer's parameters.
    pub recipe: serde_json::Value,
    /// How well it predicts rows that it was not trained on.
    #[serde(rename = "metrics")]
    pub quality: Metrics,
}

/// The features a bundle was trained on; serving computes exactly these or refuses the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureManifest {
    /// Feature function and tokenizer.
    pub version: String,
    /// Buckets of the signed hashing vector.
    pub hash_buckets: usize,
    /// Principal components kept of it.
    pub components: usize,
    /// Names of the accuracy model's features, in row order.
    pub accuracy: Vec<String>,
    /// Names of the output-length model's features, in row order.
    pub output_length: Vec<String>,
}

impl FeatureManifest {
    /// Describes this build's features under a tokenizer's `version`.
    #[must_use]
    pub fn current(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            hash_buckets: HASH_BUCKETS,
            components: COMPONENTS,
            accuracy: features::accuracy_feature_names(),
            output_length: features::output_length_feature_names(),
        }
    }
}

/// A model that a bundle can predict. Its position in the list is its category.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleModel {
    /// Its id.
    pub id: String,
    /// Its parameters, billions, as in training.
    pub parameters_b: f64,
    /// Its context length, tokens, as in training.
    pub max_model_len: u32,
    /// Evaluation rows of it.
    pub rows: u64,
    /// Of these, rows that tell the output tokens.
    pub rows_with_output_tokens: u64,
    /// Mean score of its rows, between 0 and 1.
    pub mean_accuracy: f64,
    /// Mean output tokens; absent: no row tells.
    pub mean_output_tokens: Option<f64>,
}

/// A file as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDigest {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, lower-case hexadecimal.
    pub sha256: String,
}

/// The evaluations behind a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSummary {
    /// SHA-256 over the rows as read, in order.
    pub sha256: String,
    /// Rows.
    pub rows: u64,
    /// Distinct prompts.
    pub prompts: u64,
    /// Rows that tell the output tokens.
    pub rows_with_output_tokens: u64,
}

/// Errors on the held-out prompts, which a hash of the prompt id sets apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Of all prompts, the share held out.
    pub held_out_share: f64,
    /// Held-out prompts.
    pub held_out_prompts: u64,
    /// Trees of each model, by file.
    pub trees: BTreeMap<String, u64>,
    /// Accuracy; absent: nothing was held out.
    pub accuracy: Option<SplitMetrics>,
    /// Output tokens; absent: nothing was held out or no row tells.
    pub output_tokens: Option<SplitMetrics>,
}

/// One target's errors, beside those of predicting each model's training mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitMetrics {
    /// Held-out rows.
    pub rows: u64,
    /// Mean absolute error, in the target's unit.
    pub mae: f64,
    /// The same of the per-model mean.
    pub baseline_mae: f64,
    /// Root mean squared error, in the target's unit.
    pub rmse: f64,
    /// The same of the per-model mean.
    pub baseline_rmse: f64,
    /// 1 − squared error over variance around the held-out mean.
    pub r2: f64,
    /// The same of the per-model mean.
    pub baseline_r2: f64,
    /// Of the pairs of models that differ on a prompt, the share put in the right order.
    pub pair_order: f64,
    /// The same of the per-model mean.
    pub baseline_pair_order: f64,
}
