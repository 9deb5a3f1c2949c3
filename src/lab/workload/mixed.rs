//! Several workloads at once, each with its weight.

use rand::{
    RngCore,
    distr::{Distribution, weighted::WeightedIndex},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Setup, Workload, build as build_workload, parse, refused};
use crate::lab::{Item, LabError};

/// The registered name.
pub(super) const NAME: &str = "mixed";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The workloads.
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    /// Its registered name.
    name: String,
    /// Its options.
    #[serde(default)]
    options: Map<String, Value>,
    /// Its share of the requests, before the weights are scaled to add up to 1.
    weight: f64,
}

struct Mixed {
    parts: Vec<Box<dyn Workload>>,
    weights: Vec<f64>,
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let Options { parts } = parse(NAME, setup)?;
    let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
    WeightedIndex::new(&weights).map_err(|source| refused(NAME, &format!("`weight`: {source}")))?;
    let made = |part: Part| build_workload(&part.name, &Setup { options: &part.options, ..*setup });
    let parts = parts.into_iter().map(made).collect::<Result<_, _>>()?;
    Ok(Box::new(Mixed { parts, weights }))
}

impl Workload for Mixed {
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item> {
        // A part that has ended leaves its share to the others; with none left, no weights are.
        loop {
            let at = WeightedIndex::new(&self.weights).ok()?.sample(rng);
            match self.parts.get_mut(at)?.next(rng) {
                Some(item) => return Some(item),
                None => *self.weights.get_mut(at)? = 0.0,
            }
        }
    }
}
