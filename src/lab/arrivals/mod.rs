//! When requests come. To add a process: a file with its [`Arrivals`], one line in [`ARRIVALS`].

mod closed_loop;
mod mmpp2;
mod poisson;
mod trace;

use rand::RngCore;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{LabError, options};

/// What this kind of variant is called in errors.
const KIND: &str = "arrivals";

/// A process of arrivals, in microseconds from the start of the run. Its rate scales by one number,
/// `rate_qps` of its options.
pub trait Arrivals: Send {
    /// Returns the next arrival, never before the last one; absent: no more come of themselves.
    fn next_us(&mut self, rng: &mut dyn RngCore) -> Option<u64>;

    /// Learns that a request ended at `at_us` (of a conversation, its last turn); returns the arrival that this
    /// sets free (closed loops).
    fn ended(&mut self, _at_us: u64, _rng: &mut dyn RngCore) -> Option<u64> {
        None
    }
}

pub use super::options::Files;

/// Makes a process from its options and the files they name.
pub type Build = fn(&Map<String, Value>, &Files) -> Result<Box<dyn Arrivals>, LabError>;

/// One registered process.
#[derive(Clone, Copy)]
pub struct ArrivalsEntry {
    /// The name scenarios use.
    pub name: &'static str,
    /// One line for listings.
    pub summary: &'static str,
    /// Makes it from its options and the files they name.
    pub build: Build,
}

/// Every process, sorted by name.
pub const ARRIVALS: &[ArrivalsEntry] = &[
    ArrivalsEntry {
        name: closed_loop::NAME,
        summary: "a fixed number of clients, each asking again after its answer",
        build: closed_loop::build,
    },
    ArrivalsEntry {
        name: mmpp2::NAME,
        summary: "bursts: Poisson arrivals at a low and a high rate in turn (paper appendix B)",
        build: mmpp2::build,
    },
    ArrivalsEntry {
        name: poisson::NAME,
        summary: "independent arrivals at one mean rate",
        build: poisson::build,
    },
    ArrivalsEntry { name: trace::NAME, summary: "recorded arrivals, scaled in time", build: trace::build },
];

/// Makes the process registered as `name`.
///
/// # Errors
/// [`LabError`] where the name or an option is unknown, or a file is missing or not what it should be.
pub fn build(name: &str, options: &Map<String, Value>, files: &Files) -> Result<Box<dyn Arrivals>, LabError> {
    let entry = ARRIVALS.iter().find(|entry| entry.name == name).ok_or_else(|| LabError::Unknown {
        kind: KIND,
        name: name.to_owned(),
        known: ARRIVALS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })?;
    (entry.build)(options, files)
}

fn parse<T: DeserializeOwned>(name: &str, options: &Map<String, Value>) -> Result<T, LabError> {
    options::parse(KIND, name, options)
}

/// Whole microseconds of a time in seconds.
fn micros(at_s: f64) -> u64 {
    (at_s * 1e6) as u64
}

#[cfg(test)]
mod tests;
