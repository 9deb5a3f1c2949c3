//! The batch time (eq. 12 and the optional fifth term) in whole attoseconds.
//!
//! Integers make a sum over steps exact whatever its order, so that an arrival at a step's boundary
//! falls on the same side in every implementation.

use super::Batch;
use crate::domain::BatchTimeCoefficients;

/// Attoseconds in a second.
pub const ATTOSECONDS_PER_S: f64 = 1e18;
/// Attoseconds in a microsecond.
pub const ATTOSECONDS_PER_US: i128 = 1_000_000_000_000;

/// What of a batch its time depends on: the columns of eq. 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchWork {
    /// Σ k over all members, tokens.
    pub tokens: u64,
    /// Σ c over decoding members, tokens.
    pub decode_context_tokens: u64,
    /// Σ k·c + k(k+1)/2 over prefilling members, (query, key) pairs.
    pub prefill_pairs: u128,
    /// Members that emit a token.
    pub emitting: u64,
    /// Σ k over prefilling members, tokens.
    pub prefill_tokens: u64,
}

impl BatchWork {
    /// Adds one member: `k` tokens after `c` computed ones.
    pub fn add(&mut self, k: u32, c: u32, decodes: bool, emits: bool) {
        self.tokens += u64::from(k);
        self.emitting += u64::from(emits);
        if decodes {
            self.decode_context_tokens += u64::from(c);
        } else {
            let (k, c) = (u128::from(k), u128::from(c));
            self.prefill_pairs += k * c + k * (k + 1) / 2;
            self.prefill_tokens += k as u64;
        }
    }
}

impl From<&Batch> for BatchWork {
    fn from(batch: &Batch) -> Self {
        let mut work = Self::default();
        for m in &batch.members {
            work.add(m.num_scheduled_tokens, m.num_computed_tokens, m.decodes, m.emits);
        }
        work
    }
}

/// Eq. 12 with each coefficient rounded once to whole attoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTime {
    b0: i128,
    b1: i128,
    b2: i128,
    b3: i128,
    b4: i128,
}

impl From<&BatchTimeCoefficients> for BatchTime {
    fn from(b: &BatchTimeCoefficients) -> Self {
        Self {
            b0: attoseconds(b.b0_s),
            b1: attoseconds(b.b1_s),
            b2: attoseconds(b.b2_s),
            b3: attoseconds(b.b3_s),
            b4: attoseconds(b.b4_s),
        }
    }
}

impl BatchTime {
    /// Returns the duration of a batch, attoseconds; saturates instead of overflowing.
    #[must_use]
    pub fn duration(&self, work: &BatchWork) -> i128 {
        let pairs = i128::try_from(work.prefill_pairs).unwrap_or(i128::MAX);
        self.b0
            .saturating_add(self.b1.saturating_mul(i128::from(work.tokens)))
            .saturating_add(self.b2.saturating_mul(i128::from(work.decode_context_tokens)))
            .saturating_add(self.b3.saturating_mul(pairs))
            .saturating_add(self.b4.saturating_mul(i128::from(work.emitting)))
    }

    /// Returns the run that begins with `first`, a batch whose every member decodes; `None` where a
    /// coefficient is negative or the first batch's time overflows.
    #[must_use]
    pub fn decode_run(&self, first: &BatchWork) -> Option<DecodeRun> {
        if [self.b0, self.b1, self.b2, self.b3, self.b4].iter().any(|&b| b < 0) {
            return None;
        }
        let growth = self.b2.checked_mul(i128::from(first.tokens))?;
        let duration = self.duration(first);
        (duration < i128::MAX).then_some(DecodeRun { first: duration, growth })
    }
}

/// The durations of a run of batches with the same members, each decoding one token a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeRun {
    first: i128,
    growth: i128,
}

impl DecodeRun {
    /// Returns how long the first `steps` batches take together, attoseconds; `None` on overflow.
    #[must_use]
    pub fn duration(&self, steps: u64) -> Option<i128> {
        let steps = i128::from(steps);
        let pairs = steps.checked_mul((steps - 1).max(0))? / 2;
        steps.checked_mul(self.first)?.checked_add(pairs.checked_mul(self.growth)?)
    }
}

/// Rounds seconds to whole attoseconds.
#[must_use]
pub fn attoseconds(seconds: f64) -> i128 {
    (seconds * ATTOSECONDS_PER_S).round() as i128
}

/// Returns whole attoseconds as seconds.
#[must_use]
pub fn seconds(attoseconds: i128) -> f64 {
    attoseconds as f64 / ATTOSECONDS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: BatchTimeCoefficients =
        BatchTimeCoefficients { b0_s: 1e-3, b1_s: 1e-5, b2_s: 1e-8, b3_s: 1e-9, b4_s: 1e-4 };

    #[test]
    fn each_term_counts_its_own_members() {
        let mut work = BatchWork::default();
        work.add(1, 100, true, true);
        work.add(10, 20, false, false);
        // 1 ms + 11 tokens · 10 µs + 100 context · 10 ns + (200 + 55) pairs · 1 ns + one emitter · 100 µs
        assert_eq!(BatchTime::from(&B).duration(&work), 1_211_255 * 1_000_000_000);
    }

    #[test]
    fn a_coefficient_is_rounded_once() {
        let tiny = BatchTimeCoefficients { b0_s: 0.0, b1_s: 0.6e-18, b2_s: 0.0, b3_s: 0.0, b4_s: 0.0 };
        let work = BatchWork { tokens: 10, ..BatchWork::default() };
        assert_eq!(BatchTime::from(&tiny).duration(&work), 10);
    }
}
