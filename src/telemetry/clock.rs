//! The one file that reads a clock. Everything else takes a [`Timestamp`] or a [`Now`].

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::domain::{Now, Timestamp};

/// How far the wall clock may part from the monotonic one before it counts as stepped, microseconds.
/// Under it are the read gap between the two and ordinary slewing; a suspend or a set clock is far over.
const STEP_US: i64 = 250_000;

/// The live clock: monotonic between steps of the wall clock, which it follows.
///
/// A plain wall clock would give negative durations when it is set back, a plain monotonic one would
/// part for ever from the engines' capture times after a suspend.
#[derive(Debug)]
pub struct LiveClock {
    started: Instant,
    /// Wall time at `started`, microseconds since the Unix epoch.
    offset_us: AtomicI64,
}

impl LiveClock {
    /// Starts a clock at the present wall time.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now(), offset_us: AtomicI64::new(wall_us()) }
    }

    /// Combines both readings, following the wall clock when it was stepped.
    fn reconcile(&self, elapsed_us: i64, wall_us: i64) -> i64 {
        let offset_us = self.offset_us.load(Ordering::Relaxed);
        let now_us = offset_us + elapsed_us;
        if (wall_us - now_us).abs() <= STEP_US {
            return now_us;
        }
        self.offset_us.store(wall_us - elapsed_us, Ordering::Relaxed);
        wall_us
    }
}

impl Default for LiveClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Now for LiveClock {
    fn now(&self) -> Timestamp {
        let elapsed_us = saturating_us(self.started.elapsed());
        Timestamp::from_unix_us(self.reconcile(elapsed_us, wall_us()).max(0).cast_unsigned())
    }
}

/// Measures a short span for a metric, with the monotonic clock's full resolution.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the seconds since the start.
    #[must_use]
    pub fn elapsed_s(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, saturating_us)
}

fn saturating_us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock_at(offset_us: i64) -> LiveClock {
        LiveClock { started: Instant::now(), offset_us: AtomicI64::new(offset_us) }
    }

    #[test]
    fn small_wall_clock_movements_do_not_show() {
        let clock = clock_at(1_000_000);
        assert_eq!(clock.reconcile(10, 1_000_010 - STEP_US), 1_000_010);
        assert_eq!(clock.reconcile(20, 1_000_020 + STEP_US), 1_000_020);
    }

    #[test]
    fn a_stepped_wall_clock_is_followed_and_kept() {
        let clock = clock_at(1_000_000);
        assert_eq!(clock.reconcile(10, 90_000_000), 90_000_000);
        assert_eq!(clock.reconcile(15, 90_000_001), 90_000_005);
        assert_eq!(clock.reconcile(20, 5_000_000), 5_000_000);
    }

    #[test]
    fn the_live_clock_never_goes_back() {
        let clock = LiveClock::new();
        let times: Vec<Timestamp> = (0..1000).map(|_| clock.now()).collect();
        assert!(times.is_sorted());
        assert!(times[0].unix_us() > 1_600_000_000_000_000, "wall time, not time since start");
    }
}
