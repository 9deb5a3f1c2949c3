//! Virtual time: whole microseconds since the start of a run, laid on one fixed day.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::{Now, Timestamp};

/// When every run starts, so that equal runs have equal timestamps.
const ORIGIN_US: u64 = 1_764_460_800_000_000;

/// Returns the instant `at_us` microseconds into a run.
pub(super) fn instant(at_us: u64) -> Timestamp {
    Timestamp::from_unix_us(ORIGIN_US + at_us)
}

/// The present of a run.
#[derive(Debug, Default)]
pub(super) struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// Moves the present.
    pub(super) fn set_us(&self, at_us: u64) {
        self.0.store(at_us, Ordering::Relaxed);
    }
}

impl Now for VirtualClock {
    fn now(&self) -> Timestamp {
        instant(self.0.load(Ordering::Relaxed))
    }
}
