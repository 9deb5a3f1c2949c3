//! Cheap signals that rank instances a policy holds interchangeable: filters narrow, scorers rate, a
//! picker orders. A new variant is one file and one line in its registry.

mod max_score;
mod pipeline;
mod prefix_gate;
mod registry;
mod token_load;

use rand::RngCore;

pub use max_score::MaxScore;
pub use pipeline::{AffinityConfig, AffinityError, Pipeline};
pub use prefix_gate::PrefixGate;
pub use registry::{Entry, FILTERS, PICKERS, SCORERS};
pub use token_load::TokenLoad;

use crate::domain::{InstanceView, Query, QueryLoad};

/// One instance as the cheap signals see it.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// What is known of the instance.
    pub view: &'a InstanceView,
    /// The query's work there.
    pub load: QueryLoad,
    /// Share of the prompt in the instance's prefix cache, in `[0,1]`; absent: unknown.
    pub hit: Option<f64>,
}

/// Narrows the sites that a ranking puts first; those left out follow behind.
pub trait Filter: Send + Sync {
    /// Returns the registered name.
    fn name(&self) -> &'static str;
    /// Returns the positions of the sites to keep, in rising order; none kept counts as all.
    fn keep(&self, query: &Query, sites: &[Site<'_>], rng: &mut dyn RngCore) -> Vec<usize>;
}

/// Rates one site by one signal.
pub trait Scorer: Send + Sync {
    /// Returns the registered name.
    fn name(&self) -> &'static str;
    /// Returns the rating in `[0,1]`, higher is better; absent: the signal is unknown there.
    fn score(&self, query: &Query, site: &Site<'_>) -> Option<f64>;
}

/// Orders rated sites.
pub trait Picker: Send + Sync {
    /// Returns the registered name.
    fn name(&self) -> &'static str;
    /// Returns every position of `scores` once, best first, with tiers counted from 0.
    fn order(&self, scores: &[f64], rng: &mut dyn RngCore) -> Vec<Ranked>;
}

/// One place in a ranking.
///
/// Within a tier the order is drawn by successive sampling with the given weights, so the chance that
/// a member comes first among any subset of its tier is its weight over the subset's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// What is ranked: a position in the list the ranking was asked for.
    pub position: usize,
    /// Its tier; no member of a later tier precedes one of an earlier tier.
    pub tier: usize,
    /// Its weight within the tier, positive.
    pub weight: f64,
}

#[cfg(test)]
mod tests;
