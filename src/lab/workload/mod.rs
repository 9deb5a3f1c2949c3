//! What requests are. To add a workload: a file with its [`Workload`], one line in [`WORKLOADS`].

mod agentic;
mod blocks;
mod decision_log;
mod evaluations;
mod four_tasks;
mod lengths;
mod long_output;
mod means;
mod mixed;
mod nature;
mod scores;
mod sketch;
mod trace;

use rand::RngCore;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use means::{MeanAnswer, mean_answers};

use super::{
    Item, LabError,
    options::{self, Files},
};
use crate::truth::Profile;

/// What this kind of variant is called in errors.
const KIND: &str = "workload";

/// A stream of requests.
pub trait Workload: Send {
    /// Draws the next request; absent: there are no more (a trace or a log ended).
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item>;
}

/// One model of the pool, as far as answers depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// Its id, such as `qwen3-8b`.
    pub id: String,
    /// Its parameters, billions.
    pub parameters_b: f64,
    /// Its context length, tokens.
    pub max_model_len: u32,
    /// Its factor on every answer's length.
    pub output_factor: f64,
}

impl From<&Profile> for ModelFacts {
    fn from(profile: &Profile) -> Self {
        Self {
            id: profile.model.clone(),
            parameters_b: profile.parameters_b,
            max_model_len: profile.engine.max_model_len,
            output_factor: profile.output_tokens.factor,
        }
    }
}

/// What a workload is made from.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Its options.
    pub options: &'a Map<String, Value>,
    /// The pool's models, in pool order.
    pub models: &'a [ModelFacts],
    /// The version that features must carry for the run's predictor to use them.
    pub feature_version: &'a str,
    /// The files that the options name.
    pub files: &'a Files,
}

/// One registered workload.
#[derive(Clone, Copy)]
pub struct WorkloadEntry {
    /// The name scenarios use.
    pub name: &'static str,
    /// One line for listings.
    pub summary: &'static str,
    /// Makes it.
    pub build: fn(&Setup<'_>) -> Result<Box<dyn Workload>, LabError>,
}

/// Every workload, sorted by name.
pub const WORKLOADS: &[WorkloadEntry] = &[
    WorkloadEntry {
        name: agentic::NAME,
        summary: "agents that write code with tools: long conversations with shared prefixes",
        build: agentic::build,
    },
    WorkloadEntry {
        name: decision_log::NAME,
        summary: "the decisions of a real router, with their predictions and outcomes",
        build: decision_log::build,
    },
    WorkloadEntry {
        name: evaluations::NAME,
        summary: "real prompts with real scores, held-out rows only",
        build: evaluations::build,
    },
    WorkloadEntry {
        name: four_tasks::NAME,
        summary: "the paper's four tasks, with scores around its table 2",
        build: four_tasks::build,
    },
    WorkloadEntry {
        name: long_output::NAME,
        summary: "reasoning and summaries of thousands of tokens",
        build: long_output::build,
    },
    WorkloadEntry { name: mixed::NAME, summary: "several workloads at once, by weight", build: mixed::build },
    WorkloadEntry {
        name: trace::NAME,
        summary: "recorded lengths and shared prefixes (Azure, Mooncake)",
        build: trace::build,
    },
];

/// Makes the workload registered as `name`.
///
/// # Errors
/// [`LabError`] where the name or an option is unknown, or a file is missing or not what it should be.
pub fn build(name: &str, setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let entry = WORKLOADS.iter().find(|entry| entry.name == name).ok_or_else(|| LabError::Unknown {
        kind: KIND,
        name: name.to_owned(),
        known: WORKLOADS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })?;
    (entry.build)(setup)
}

fn parse<T: DeserializeOwned>(name: &str, setup: &Setup<'_>) -> Result<T, LabError> {
    options::parse(KIND, name, setup.options)
}

fn refused(name: &str, what: &str) -> LabError {
    options::refused(KIND, name, what)
}

#[cfg(test)]
mod tests;
