//! A fixed number of clients, each of which asks again once it has its answer and has thought.

use rand::RngCore;
use rand_distr::{Distribution, Exp1};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Arrivals, Files, KIND, micros, parse};
use crate::lab::{LabError, options};

/// The registered name.
pub(super) const NAME: &str = "closed-loop";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Clients.
    concurrency: u32,
    /// Mean time from an answer to the client's next request, seconds; exponential.
    #[serde(default)]
    think_s: f64,
    /// Time over which the clients begin, evenly, seconds.
    #[serde(default)]
    ramp_s: f64,
}

struct ClosedLoop {
    options: Options,
    begun: u32,
}

/// Makes the process.
pub(super) fn build(options: &Map<String, Value>, _files: &Files) -> Result<Box<dyn Arrivals>, LabError> {
    let options: Options = parse(NAME, options)?;
    if options.concurrency == 0 {
        return Err(options::refused(KIND, NAME, "`concurrency` is 0; it must be at least 1"));
    }
    for (key, value) in [("think_s", options.think_s), ("ramp_s", options.ramp_s)] {
        if !(value.is_finite() && value >= 0.0) {
            let what = format!("`{key}` is {value}; it must be a finite number of at least 0");
            return Err(options::refused(KIND, NAME, &what));
        }
    }
    Ok(Box::new(ClosedLoop { options, begun: 0 }))
}

impl Arrivals for ClosedLoop {
    fn next_us(&mut self, _rng: &mut dyn RngCore) -> Option<u64> {
        let Options { concurrency, ramp_s, .. } = self.options;
        let at_s = ramp_s * f64::from(self.begun) / f64::from(concurrency);
        (self.begun < concurrency).then(|| {
            self.begun += 1;
            micros(at_s)
        })
    }

    fn ended(&mut self, at_us: u64, rng: &mut dyn RngCore) -> Option<u64> {
        let unit: f64 = Exp1.sample(rng);
        Some(at_us.saturating_add(micros(unit * self.options.think_s)))
    }
}
