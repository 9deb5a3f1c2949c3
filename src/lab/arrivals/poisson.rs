//! Independent arrivals at one mean rate: gaps are exponential.

use rand::RngCore;
use rand_distr::{Distribution, Exp1};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Arrivals, Files, KIND, micros, parse};
use crate::lab::{LabError, options};

/// The registered name.
pub(super) const NAME: &str = "poisson";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Mean arrivals a second.
    rate_qps: f64,
}

struct Poisson {
    rate_qps: f64,
    at_s: f64,
}

/// Makes the process.
pub(super) fn build(options: &Map<String, Value>, _files: &Files) -> Result<Box<dyn Arrivals>, LabError> {
    let Options { rate_qps } = parse(NAME, options)?;
    options::positive(KIND, NAME, "rate_qps", rate_qps)?;
    Ok(Box::new(Poisson { rate_qps, at_s: 0.0 }))
}

impl Arrivals for Poisson {
    fn next_us(&mut self, rng: &mut dyn RngCore) -> Option<u64> {
        let gap: f64 = Exp1.sample(rng);
        self.at_s += gap / self.rate_qps;
        Some(micros(self.at_s))
    }
}
