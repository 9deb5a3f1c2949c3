//! LightGBM's trees in safe Rust: read from its text format and evaluated bit for bit as it does.
//!
//! LightGBM itself (4.7.0) loads a damaged file and may then never return, and its
//! handles are neither `Send` nor `Sync`; here a model is checked whole, then immutable.

mod parse;

use thiserror::Error;

/// Values this close to zero are zero (`kZeroThreshold`, LightGBM 4.7.0 `meta.h`: a float constant).
const ZERO_THRESHOLD: f64 = 1e-35_f32 as f64;

/// Why a model file cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ForestError {
    /// The file is larger than any model that `bear-train` writes.
    #[error("{bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The most accepted.
        limit: usize,
    },
    /// The bytes are not text.
    #[error("not UTF-8 text (byte {at})")]
    NotText {
        /// The first bad byte.
        at: usize,
    },
    /// The file ends before it is complete.
    #[error("cut short: {missing} is missing")]
    Truncated {
        /// What did not come.
        missing: String,
    },
    /// A line is not what LightGBM writes there.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A tree cannot be evaluated.
    #[error("tree {tree}: {what}")]
    Tree {
        /// From 0, as in the file.
        tree: usize,
        /// What is wrong.
        what: String,
    },
    /// The model is sound but of a kind that is not evaluated here.
    #[error("{what} is not supported; train without it")]
    Unsupported {
        /// Which kind.
        what: String,
    },
}

/// How a split treats missing values (LightGBM 4.7.0 `tree.h`, bits 2 and 3 of `decision_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// NaN counts as zero.
    None,
    /// Zero and NaN are missing.
    Zero,
    /// NaN is missing.
    Nan,
}

/// Where a decision leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another split of the same tree, by its position in [`Forest::splits`].
    Split(u32),
    /// A leaf, by its position in [`Forest::leaves`].
    Leaf(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Left if the value is at most the threshold.
    Numerical { threshold: f64, missing: Missing, default_left: bool },
    /// Left if the value's bit is set among these words of [`Forest::category_bits`].
    Categorical { first_word: u32, words: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    feature: u32,
    rule: Rule,
    left: Next,
    right: Next,
}

/// What turns the sum of leaves into the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transform {
    /// Nothing: `regression`, `regression_l1`, `huber`.
    Identity,
    /// `regression sqrt`: sign(x)·x².
    SignedSquare,
}

impl Transform {
    fn apply(self, sum: f64) -> f64 {
        match self {
            Self::Identity => sum,
            Self::SignedSquare if sum == 0.0 => 0.0 * sum * sum,
            Self::SignedSquare => sum.signum() * sum * sum,
        }
    }
}

/// A checked model: immutable, shareable between threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Forest {
    feature_names: Vec<String>,
    transform: Transform,
    /// The entry of each tree, in the file's order.
    roots: Vec<Next>,
    splits: Vec<Split>,
    leaves: Vec<f64>,
    category_bits: Vec<u32>,
}

impl Forest {
    /// Reads a model in LightGBM's text format (v4).
    ///
    /// # Errors
    /// Names the place of the first thing that is malformed, inconsistent, cyclic or not supported.
    pub fn parse(bytes: &[u8]) -> Result<Self, ForestError> {
        parse::parse(bytes)
    }

    /// Returns the names of the features, in row order.
    #[must_use]
    pub fn feature_names(&self) -> &[String] {
        &self.feature_names
    }

    /// Returns the number of trees.
    #[must_use]
    pub const fn trees(&self) -> usize {
        self.roots.len()
    }

    /// Returns the prediction for one row of feature values, as LightGBM's own `predict` gives it.
    ///
    /// A row shorter than [`Self::feature_names`] reads as if it went on with NaN.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> f64 {
        let mut sum = 0.0;
        for root in &self.roots {
            sum += self.leaf(*root, row);
        }
        self.transform.apply(sum)
    }

    fn leaf(&self, root: Next, row: &[f64]) -> f64 {
        let mut next = root;
        // Parsing proved that splits form a tree, so the walk ends.
        loop {
            match next {
                Next::Leaf(leaf) => return self.leaves.get(leaf as usize).copied().unwrap_or(f64::NAN),
                Next::Split(split) => {
                    let Some(split) = self.splits.get(split as usize) else { return f64::NAN };
                    let value = row.get(split.feature as usize).copied().unwrap_or(f64::NAN);
                    next = if self.goes_left(split.rule, value) { split.left } else { split.right };
                }
            }
        }
    }

    fn goes_left(&self, rule: Rule, value: f64) -> bool {
        match rule {
            Rule::Numerical { threshold, missing, default_left } => {
                // The C API drops values near zero from a dense row before any tree sees them.
                let near_zero = value.abs() <= ZERO_THRESHOLD;
                match missing {
                    Missing::Zero if near_zero || value.is_nan() => default_left,
                    Missing::Nan if value.is_nan() => default_left,
                    _ if near_zero || value.is_nan() => 0.0 <= threshold,
                    _ => value <= threshold,
                }
            }
            Rule::Categorical { first_word, words } => {
                let Some(category) = category(value) else { return false };
                let word = category / 32;
                let bits =
                    (word < words).then(|| self.category_bits.get((first_word + word) as usize)).flatten();
                bits.is_some_and(|bits| bits >> (category % 32) & 1 == 1)
            }
        }
    }
}

/// Returns the category a value names: its integer part, none where that is negative or not an i32.
///
/// LightGBM casts to a 32-bit integer, which on the machines it is built for turns every value out of range
/// into a negative one.
fn category(value: f64) -> Option<u32> {
    let truncated = value.trunc();
    (truncated >= 0.0 && truncated <= f64::from(i32::MAX)).then_some(truncated as u32)
}

#[cfg(test)]
mod tests;
