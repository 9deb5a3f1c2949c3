//! From a corpus to a bundle: split, project, train both regressors, measure, write down.

mod table;

use std::collections::BTreeMap;

use bear::predict::{
    BUNDLE_SCHEMA, BpeTokens, BundleModel, DataSummary, FeatureManifest, FeatureTokens as _, FileDigest,
    ForestError, Manifest, Metrics, PredictError, bundle, digest::hex,
};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    card,
    evaluations::{Corpus, ModelFacts, Row},
    lightgbm::LightGbmError,
    principal,
    recipe::{BoosterRecipe, Recipe},
};
use table::{Part, Table, Target, Trained};

/// Why no bundle came out.
#[derive(Debug, Error)]
pub enum FitError {
    /// LightGBM failed.
    #[error(transparent)]
    LightGbm(#[from] LightGbmError),
    /// The projection could not be fitted or the tokenizer not read.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// LightGBM wrote trees that serving would refuse.
    #[error("the trained `{file}` cannot be served: {source}")]
    Unservable {
        /// The file.
        file: &'static str,
        /// Why not.
        #[source]
        source: ForestError,
    },
    /// The manifest could not be written.
    #[error("the manifest cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// A share of the recipe is out of range.
    #[error("the recipe's `{name}` is {value}, outside [0,0.9]")]
    Share {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// Nothing is left to train on.
    #[error("every prompt is held out; bring more prompts or lower the recipe's `held_out_share`")]
    AllHeldOut,
    /// A model's size and context length are not told.
    #[error("no facts about the model `{model}`; add it to the models file")]
    NoFacts {
        /// The model.
        model: String,
    },
}

/// What a bundle is called and made with.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Its name.
    pub name: &'a str,
    /// The trainer's parameters.
    pub recipe: &'a Recipe,
    /// What `models.json` says.
    pub facts: &'a BTreeMap<String, ModelFacts>,
    /// The feature tokenizer's file.
    pub tokenizer: &'a [u8],
}

/// Trains both regressors on the training part of `corpus` and returns the bundle's files by name.
///
/// The same order and corpus give the same bytes. `progress` is told after each training round, at most
/// [`rounds`] times.
///
/// # Errors
/// Says what could not be trained or would not be served.
pub fn fit(
    corpus: &Corpus,
    order: &Order<'_>,
    mut progress: impl FnMut(),
) -> Result<BTreeMap<String, Vec<u8>>, FitError> {
    let recipe = order.recipe;
    for (name, value) in
        [("held_out_share", recipe.held_out_share), ("validation_share", recipe.validation_share)]
    {
        if !(0.0..=0.9).contains(&value) {
            return Err(FitError::Share { name, value });
        }
    }
    let parts: Vec<Part> = corpus.prompts.iter().map(|prompt| Part::of(&prompt.id, recipe)).collect();
    if parts.iter().all(|part| *part == Part::HeldOut) {
        return Err(FitError::AllHeldOut);
    }
    let training = corpus.prompts.iter().zip(&parts).filter(|(_, part)| **part != Part::HeldOut);
    let pca = principal::fit(training.map(|(prompt, _)| &prompt.features))?;
    let table = Table::new(corpus, order, &parts, &pca);
    let accuracy = table.train(Target::Accuracy, &mut progress)?;
    let output_length = match table.has(Target::OutputTokens) {
        true => Some(table.train(Target::OutputTokens, &mut progress)?),
        false => None,
    };
    let held_out_prompts = parts.iter().filter(|part| **part == Part::HeldOut).count() as u64;
    let metrics = metrics(recipe, held_out_prompts, &accuracy, output_length.as_ref());
    let mut files = BTreeMap::from([
        (bundle::ACCURACY.to_owned(), accuracy.text.into_bytes()),
        (bundle::PCA.to_owned(), pca.to_bytes()),
        (bundle::TOKENIZER.to_owned(), order.tokenizer.to_vec()),
    ]);
    files.extend(output_length.map(|trained| (bundle::OUTPUT_LENGTH.to_owned(), trained.text.into_bytes())));
    finish(files, corpus, order, metrics)
}

/// Returns how often [`fit`] tells its progress, at most.
#[must_use]
pub fn rounds(recipe: &Recipe) -> u32 {
    // Once for each size that is tried, once to train.
    let of = |booster: &BoosterRecipe| booster.num_iterations * (1 + booster.num_leaves.len() as u32);
    of(&recipe.accuracy) + of(&recipe.output_length)
}

fn metrics(
    recipe: &Recipe,
    held_out_prompts: u64,
    accuracy: &Trained,
    output_length: Option<&Trained>,
) -> Metrics {
    let mut trees = BTreeMap::from([(Target::Accuracy.file().to_owned(), accuracy.trees as u64)]);
    trees.extend(output_length.map(|trained| (Target::OutputTokens.file().to_owned(), trained.trees as u64)));
    Metrics {
        held_out_share: recipe.held_out_share,
        held_out_prompts,
        trees,
        accuracy: accuracy.metrics,
        output_tokens: output_length.and_then(|trained| trained.metrics),
    }
}

fn facts(corpus: &Corpus, order: &Order<'_>, model: usize) -> Result<ModelFacts, FitError> {
    let name = &corpus.models[model];
    order.facts.get(name).copied().ok_or_else(|| FitError::NoFacts { model: name.clone() })
}

/// Adds card and manifest to the trained files.
fn finish(
    mut files: BTreeMap<String, Vec<u8>>,
    corpus: &Corpus,
    order: &Order<'_>,
    metrics: Metrics,
) -> Result<BTreeMap<String, Vec<u8>>, FitError> {
    let tokens = BpeTokens::from_bytes(order.tokenizer)?;
    let with_lengths = corpus.rows.iter().filter(|row| row.output_tokens.is_some());
    let mut manifest = Manifest {
        schema: BUNDLE_SCHEMA.to_owned(),
        name: order.name.to_owned(),
        synthetic: corpus.synthetic,
        made_by: format!("bear-train {} with LightGBM 4.7.0", env!("CARGO_PKG_VERSION")),
        features: FeatureManifest::current(tokens.version()),
        models: (0..corpus.models.len()).map(|m| model(corpus, order, m)).collect::<Result<_, _>>()?,
        files: BTreeMap::new(),
        data: DataSummary {
            sha256: corpus.sha256.clone(),
            rows: corpus.rows.len() as u64,
            prompts: corpus.prompts.len() as u64,
            rows_with_output_tokens: with_lengths.count() as u64,
        },
        recipe: serde_json::to_value(order.recipe)?,
        quality: metrics,
    };
    files.insert(bundle::CARD.to_owned(), card::write(&manifest).into_bytes());
    for (name, bytes) in &files {
        let digest = FileDigest { bytes: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) };
        manifest.files.insert(name.clone(), digest);
    }
    let mut json = serde_json::to_vec_pretty(&manifest)?;
    json.push(b'\n');
    files.insert(bundle::MANIFEST.to_owned(), json);
    Ok(files)
}

fn model(corpus: &Corpus, order: &Order<'_>, index: usize) -> Result<BundleModel, FitError> {
    let facts = facts(corpus, order, index)?;
    let rows: Vec<&Row> = corpus.rows.iter().filter(|row| row.model == index).collect();
    let lengths: Vec<f64> = rows.iter().filter_map(|row| row.output_tokens).collect();
    let mean = |sum: f64, count: usize| sum / count.max(1) as f64;
    Ok(BundleModel {
        id: corpus.models[index].clone(),
        parameters_b: facts.parameters_b,
        max_model_len: facts.max_model_len,
        rows: rows.len() as u64,
        rows_with_output_tokens: lengths.len() as u64,
        mean_accuracy: mean(rows.iter().map(|row| row.score).sum(), rows.len()),
        mean_output_tokens: (!lengths.is_empty()).then(|| mean(lengths.iter().sum(), lengths.len())),
    })
}

#[cfg(test)]
mod tests;
