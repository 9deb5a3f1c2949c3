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

    /// Returns the signed distance to `earlier` in microseconds (negative when `self` precedes it); one past
    /// 292,000 years is the farthest there is.
    #[must_use]
    pub const fn us_since(self, earlier: Self) -> i64 {
        let ahead = 0_i64.saturating_add_unsigned(self.0.saturating_sub(earlier.0));
        ahead.saturating_sub_unsigned(earlier.0.saturating_sub(self.0))
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

    /// Returns the instant `seconds` later; a negative or undefined one counts as zero, an infinite
    /// or too large one leads to the last instant there is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_end_where_their_type_does() {
        let (first, last) = (Timestamp::from_unix_us(0), Timestamp::from_unix_us(u64::MAX));
        assert_eq!((last.us_since(first), first.us_since(last)), (i64::MAX, i64::MIN));
        let (a, b) = (Timestamp::from_unix_us(5), Timestamp::from_unix_us(8));
        assert_eq!((b.us_since(a), a.us_since(b), a.us_since(a)), (3, -3, 0));
    }

    #[test]
    fn seconds_that_are_no_time_move_nothing_or_to_the_end() {
        let at = Timestamp::from_unix_us(7);
        assert_eq!((at.after_s(-1.0), at.after_s(f64::NAN)), (at, at));
        assert_eq!(at.after_s(f64::INFINITY), Timestamp::from_unix_us(u64::MAX));
        assert_eq!(at.after_s(1.5), Timestamp::from_unix_us(1_500_007));
    }
}
