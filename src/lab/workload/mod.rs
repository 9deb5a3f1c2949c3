//! What requests are. To add a workload: a file with its [`Workload`], one line in [`WORKLOADS`].

use rand::RngCore;
use serde_json::{Map, Value};

use super::{Item, LabError, arrivals::Files};

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

/// What a workload is made from.
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
pub const WORKLOADS: &[WorkloadEntry] = &[];
