//! When an engine's steps ended, as its streams show it: the tokens of one step arrive together.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crate::domain::Timestamp;

/// Tokens that arrive within this of each other are of one step: far below any engine's step, above the
/// jitter of a local network. Microseconds.
pub(super) const TOGETHER_US: u64 = 500;

/// Step ends remembered: more than two seconds of the fastest engine's steps.
const REMEMBERED: usize = 1024;

/// The latest step ends of one engine, on its side of the egress.
#[derive(Debug, Default)]
pub(super) struct Steps {
    ends: Mutex<VecDeque<Timestamp>>,
}

impl Steps {
    /// Notes that a token left the engine at `at`.
    pub(super) fn note(&self, at: Timestamp) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let another = ends.back().is_none_or(|last| at.unix_us() > last.unix_us() + TOGETHER_US);
        if another {
            if ends.len() == REMEMBERED {
                ends.pop_front();
            }
            ends.push_back(at);
        }
    }

    /// Returns the ends of the steps, oldest first.
    pub(super) fn ends(&self) -> Vec<Timestamp> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_come_together_are_one_step() {
        let steps = Steps::default();
        for us in [1000, 1100, 1500, 1501, 9000, 8000] {
            steps.note(Timestamp::from_unix_us(us));
        }
        let ends: Vec<u64> = steps.ends().iter().map(|end| end.unix_us()).collect();
        assert_eq!(ends, [1000, 1501, 9000]);
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let steps = Steps::default();
        (0..2000u64).for_each(|n| steps.note(Timestamp::from_unix_us(n * 1000)));
        let ends = steps.ends();
        assert_eq!((ends.len(), ends[1023].unix_us()), (REMEMBERED, 1_999_000));
    }
}
