//! Weighted sums of signals, some of which may be unknown.

use std::cmp::Ordering;

/// A candidate's score so far. The fewer of its parts are unknown, the earlier it comes; among equals the
/// higher sum does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Score {
    unknown: u32,
    sum: f64,
}

impl Score {
    /// Adds a part; one of weight 0 does not count, known or not.
    pub(super) fn add(mut self, weight: f64, part: Option<f64>) -> Self {
        match part {
            _ if weight == 0.0 => {}
            Some(part) => self.sum += weight * part,
            None => self.unknown += 1,
        }
        self
    }

    /// Orders better scores first.
    pub(super) fn better(&self, other: &Self) -> Ordering {
        self.unknown.cmp(&other.unknown).then_with(|| other.sum.total_cmp(&self.sum))
    }
}

/// One signal of every candidate as a share of the largest, so that units do not matter.
#[derive(Clone, Debug)]
pub(super) struct Relative {
    values: Vec<Option<f64>>,
    over: f64,
}

impl Relative {
    /// Takes the values in candidate order; `floor` keeps shares finite where all are 0.
    pub(super) fn new(values: Vec<Option<f64>>, floor: f64) -> Self {
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        Self { values, over: most + floor }
    }

    /// Returns candidate `i`'s share of the largest value; absent where its own is unknown.
    pub(super) fn share(&self, i: usize) -> Option<f64> {
        self.values[i].map(|value| value / self.over)
    }
}
