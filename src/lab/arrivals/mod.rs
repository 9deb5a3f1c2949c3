//! When requests come. To add a process: a file with its [`Arrivals`], one line in [`ARRIVALS`].

use std::{collections::BTreeMap, sync::Arc};

use rand::RngCore;
use serde_json::{Map, Value};

use super::LabError;

/// A process of arrivals, in microseconds from the start of the run. Its rate scales by one number,
/// `rate_qps` of its options.
pub trait Arrivals: Send {
    /// Returns the next arrival, never before the last one; absent: no more come of themselves.
    fn next_us(&mut self, rng: &mut dyn RngCore) -> Option<u64>;

    /// Learns that a request ended at `at_us`; returns the arrival that this sets free (closed loops).
    fn ended(&mut self, _at_us: u64, _rng: &mut dyn RngCore) -> Option<u64> {
        None
    }
}

/// Files handed in by the name that options give them, unpacked.
pub type Files = BTreeMap<String, Arc<[u8]>>;

/// One registered process.
#[derive(Clone, Copy)]
pub struct ArrivalsEntry {
    /// The name scenarios use.
    pub name: &'static str,
    /// One line for listings.
    pub summary: &'static str,
    /// Makes it from its options and the files they name.
    pub build: fn(&Map<String, Value>, &Files) -> Result<Box<dyn Arrivals>, LabError>,
}

/// Every process, sorted by name.
pub const ARRIVALS: &[ArrivalsEntry] = &[];
