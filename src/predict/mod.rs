//! What a model will make of a prompt: features, accuracy, output length, price (eq. 4, paper A.4).
//!
//! A [`Predictor`] is one loaded bundle, or the prior. Bundles come in as bytes and are checked whole
//! before use. Training and serving share [`features`]; the trees are evaluated by [`forest`], in safe
//! Rust, bit for bit as LightGBM does. To add a feature, append it in `features.rs` (or a cue in
//! `cues.rs`) and raise [`features::FEATURE_VERSION`]: old bundles are then refused with a clear error.

pub mod bundle;
mod cues;
pub mod digest;
mod feature_tokens;
pub mod features;
pub mod forest;
mod manifest;
mod numerals;
pub mod pca;
mod predictor;
pub mod price;
mod shape;

use thiserror::Error;

pub use cues::Cue;
pub use feature_tokens::{BpeTokens, FeatureTokens};
pub use features::{FEATURE_VERSION, FeatureParts, QueryFeatures};
pub use forest::{Forest, ForestError};
pub use manifest::{
    BundleModel, DataSummary, FeatureManifest, FileDigest, Manifest, Metrics, SCHEMA as BUNDLE_SCHEMA,
    SplitMetrics,
};
pub use pca::Pca;
pub use predictor::{ModelPrediction, PredictionSource, Predictor};
pub use price::cost_usd;

/// Why a bundle cannot be used.
#[derive(Debug, Error)]
pub enum PredictError {
    /// A file that every bundle has is not there.
    #[error("the bundle has no `{file}`; a bundle is a folder written by `bear-train`")]
    MissingFile {
        /// Its name inside the bundle.
        file: String,
    },
    /// The manifest is not what this version reads.
    #[error("`manifest.json`: {source}; train the bundle again with this version's `bear-train`")]
    Manifest {
        /// What the reader said, with line and column.
        #[source]
        source: serde_json::Error,
    },
    /// The manifest's schema is another one.
    #[error(
        "`manifest.json` has schema `{found}`, this version reads `{expected}`; train the bundle again with this \
         version's `bear-train`"
    )]
    Schema {
        /// The one found.
        found: String,
        /// The one read.
        expected: &'static str,
    },
    /// The bundle was trained on other features.
    #[error("the bundle's features are `{found}`, this version computes `{expected}`; train it again")]
    FeatureVersion {
        /// The bundle's.
        found: String,
        /// This build's.
        expected: String,
    },
    /// A file is not the one that was written.
    #[error(
        "`{file}` has SHA-256 {found}, the manifest says {expected}: the file was changed or cut short; \
         copy the whole bundle again"
    )]
    Digest {
        /// Its name inside the bundle.
        file: String,
        /// The digest of the bytes handed in.
        found: String,
        /// The manifest's.
        expected: String,
    },
    /// The manifest contradicts itself or a file.
    #[error(
        "the bundle is inconsistent: {what}; a bundle is not to be edited, train it again with `bear-train`"
    )]
    Inconsistent {
        /// What does not fit.
        what: String,
    },
    /// A tree file cannot be used.
    #[error("`{file}`: {source}")]
    Forest {
        /// Its name inside the bundle.
        file: &'static str,
        /// What is wrong with it.
        #[source]
        source: ForestError,
    },
    /// The projection cannot be used.
    #[error("`pca.bin`: {what}; train the bundle again with `bear-train`")]
    Pca {
        /// What is wrong with it.
        what: String,
    },
    /// The feature tokenizer cannot be used.
    #[error(
        "`feature_tokenizer.json`: {what}; `bear-train tokenizer` makes one, or leave `--tokenizer` out to train with the \
         built-in one"
    )]
    Tokenizer {
        /// What is wrong with it.
        what: String,
    },
    /// Features of another version or shape were handed in.
    #[error(
        "these features cannot be used: {what}; take them unchanged from `bear features` or a logged decision"
    )]
    Features {
        /// What is wrong with them.
        what: String,
    },
}
