//! Instants in whole microseconds, so that live and virtual time are one type.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: whole microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Wraps microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_us(us: u64) -> Self {
        Self(us)
    }

    /// Returns microseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_us(self) -> u64 {
        self.0
    }

    /// Returns the signed distance to `earlier` in microseconds (negative when `self` precedes it).
    #[must_use]
    pub const fn us_since(self, earlier: Self) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }

    /// Returns the time passed since `earlier`, zero when `earlier` lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns the instant `seconds` later; a negative or non-finite value counts as zero.
    #[must_use]
    pub fn after_s(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds.max(0.0) * 1e6).round() as u64))
    }
}

/// A source of the present: the live clock or virtual time.
pub trait Now: Send + Sync {
    /// Returns the present instant.
    fn now(&self) -> Timestamp;
}
