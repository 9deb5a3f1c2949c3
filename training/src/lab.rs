//! Evaluations of the lab's own requests: what the routers of a scenario may have learned before it.
//!
//! They are drawn from a workload of `bear::lab` with a seed that no run has, and are generated like its
//! answers: a bundle trained on them is synthetic.

use std::collections::BTreeMap;

use bear::{
    lab::{
        LabError, Named,
        arrivals::Files,
        workload::{self, Setup},
    },
    predict::{BpeTokens, FeatureTokens as _},
    truth::{PROFILES, Profile, TruthError},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use thiserror::Error;

use crate::evaluations::{Content, Evaluation, ModelFacts, SYNTHETIC_SCORER};

/// Seed of the training rows, far from those of runs (1, 2, …).
pub const TRAINING_SEED: u64 = 9_000_001;
/// Seed of rows that neither runs nor training have.
pub const TEST_SEED: u64 = 9_100_001;

/// Why no evaluations came out.
#[derive(Debug, Error)]
pub enum LabRowsError {
    /// The workload cannot be made.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A built-in profile cannot be read.
    #[error(transparent)]
    Truth(#[from] TruthError),
}

/// One of the lab's bundles: what it is trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its name and folder.
    pub name: &'static str,
    /// The workload.
    pub workload: Named,
    /// Prompts.
    pub prompts: usize,
}

/// Returns the lab's bundles.
#[must_use]
pub fn plans() -> Vec<Plan> {
    let workload = |options: serde_json::Value| Named {
        name: String::from("four-tasks"),
        options: options.as_object().cloned().unwrap_or_default(),
    };
    vec![
        Plan { name: "four-tasks", workload: workload(json!({})), prompts: 10_000 },
        // The traffic of another team: two of the tasks, a smaller model tuned to them, half as long answers.
        Plan {
            name: "other-mix",
            workload: workload(json!({
                "mix": {"question-answering": 0.8, "summarisation": 0.2},
                "scores": {"qwen3-0.6b": {"question-answering": 0.55, "summarisation": 0.45}},
                "output_factor": 0.5,
            })),
            prompts: 6_000,
        },
    ]
}

/// Returns the pool of the paper, as the built-in profiles describe it.
///
/// # Errors
/// A built-in profile cannot be read.
pub fn pool() -> Result<Vec<workload::ModelFacts>, LabRowsError> {
    PROFILES.iter().map(|entry| Ok(workload::ModelFacts::from(&Profile::built_in(entry.name)?))).collect()
}

/// Returns what a models file says of the pool.
#[must_use]
pub fn facts(pool: &[workload::ModelFacts]) -> BTreeMap<String, ModelFacts> {
    let facts = |model: &workload::ModelFacts| ModelFacts {
        parameters_b: model.parameters_b,
        max_model_len: model.max_model_len,
    };
    pool.iter().map(|model| (model.id.clone(), facts(model))).collect()
}

/// Draws evaluations: one row a prompt and model, prompts in order, the same for the same seed.
///
/// # Errors
/// The plan's workload cannot be made.
pub fn evaluations(
    plan: &Plan,
    pool: &[workload::ModelFacts],
    seed: u64,
) -> Result<Vec<Evaluation>, LabRowsError> {
    let tokens = BpeTokens::built_in();
    let setup = Setup {
        options: &plan.workload.options,
        models: pool,
        feature_version: tokens.version(),
        files: &Files::new(),
    };
    let mut workload = workload::build(&plan.workload.name, &setup)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let items = std::iter::from_fn(|| workload.next(&mut rng)).take(plan.prompts);
    let mut rows = Vec::with_capacity(plan.prompts * pool.len());
    for (i, item) in items.enumerate() {
        let Some(features) = &item.features else { continue };
        for (model, answer) in pool.iter().zip(item.answers.iter()) {
            let Some(score) = answer.score else { continue };
            rows.push(Evaluation {
                prompt_id: format!("{}-{seed}-{i:06}", plan.name),
                content: Content::Features(Box::new((**features).clone())),
                model: model.id.clone(),
                score,
                output_tokens: Some(f64::from(answer.output_tokens)),
                task: Some(item.task.to_string()),
                scorer: Some(SYNTHETIC_SCORER.to_owned()),
            });
        }
    }
    Ok(rows)
}
