//! The pipeline: filters, then weighted scorers, then the picker, as one ranking of a set.

use rand::RngCore;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Filter, MaxScore, Picker, PrefixGate, Ranked, Scorer, Site, TokenLoad};
use crate::domain::Query;

/// The `affinity` section of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AffinityConfig {
    /// Share of the prompt that a prefix cache must hold for its instance to be kept to, in `[0,1]`; 0: never.
    pub threshold: f64,
    /// Extra wait that keeping to it may cost, milliseconds, at most the TTFT target; 0: any.
    pub max_ttft_penalty_ms: f64,
    /// Share of requests that ignore it, to learn. Only 0 is supported.
    pub exploration: f64,
}

impl Default for AffinityConfig {
    fn default() -> Self {
        Self { threshold: 0.8, max_ttft_penalty_ms: 18_000.0, exploration: 0.0 }
    }
}

impl AffinityConfig {
    /// Checks the values that types cannot.
    ///
    /// # Errors
    /// [`AffinityError`] names the key and its value.
    pub fn check(&self) -> Result<(), AffinityError> {
        let Self { threshold, max_ttft_penalty_ms, exploration } = *self;
        let wrong = |key, value, hint| Err(AffinityError::Value { key, value, hint });
        if !(0.0..=1.0).contains(&threshold) {
            return wrong("threshold", threshold, "it is a share, between 0 and 1");
        }
        if !(max_ttft_penalty_ms.is_finite() && max_ttft_penalty_ms >= 0.0) {
            return wrong("max_ttft_penalty_ms", max_ttft_penalty_ms, "it must be 0 or more");
        }
        if exploration != 0.0 {
            return wrong("exploration", exploration, "this version does not explore; leave it at 0");
        }
        Ok(())
    }
}

/// A value of the `affinity` section that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AffinityError {
    /// A value is out of its range.
    #[error("affinity.{key} is {value}; {hint}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        hint: &'static str,
    },
}

/// A composed ranking of interchangeable instances.
pub struct Pipeline {
    filters: Vec<Box<dyn Filter>>,
    scorers: Vec<(Box<dyn Scorer>, f64)>,
    picker: Box<dyn Picker>,
}

impl Pipeline {
    /// Composes a pipeline; each scorer comes with its weight.
    #[must_use]
    pub fn new(
        filters: Vec<Box<dyn Filter>>,
        scorers: Vec<(Box<dyn Scorer>, f64)>,
        picker: Box<dyn Picker>,
    ) -> Self {
        Self { filters, scorers, picker }
    }

    /// Composes the token-aware pipeline: the prefix gate, then token load, then the highest score.
    ///
    /// # Errors
    /// [`AffinityError`] where a value is out of its range.
    pub fn from_config(config: &AffinityConfig) -> Result<Self, AffinityError> {
        config.check()?;
        let gate = PrefixGate::from(config);
        let token_load: Box<dyn Scorer> = Box::new(TokenLoad::default());
        Ok(Self::new(vec![Box::new(gate)], vec![(token_load, 1.0)], Box::new(MaxScore)))
    }

    /// Ranks all sites, best first: those the filters keep, then the rest, each part by score.
    ///
    /// Positions are those of `sites`. A signal unknown at a site adds nothing to its score.
    pub fn rank(&self, query: &Query, sites: &[Site<'_>], rng: &mut dyn RngCore) -> Vec<Ranked> {
        let scores: Vec<f64> = sites.iter().map(|site| self.score(query, site)).collect();
        let (kept, rest) = self.narrow(query, sites, rng);
        let mut ranking = Vec::with_capacity(sites.len());
        for part in [kept, rest] {
            let base = ranking.last().map_or(0, |last: &Ranked| last.tier + 1);
            let part_scores: Vec<f64> = part.iter().map(|&i| scores[i]).collect();
            let placed = self.picker.order(&part_scores, rng);
            ranking.extend(placed.into_iter().map(|ranked| Ranked {
                position: part[ranked.position],
                tier: base + ranked.tier,
                ..ranked
            }));
        }
        ranking
    }

    /// Returns the weighted sum of the scorers' ratings, each clamped to `[0,1]`.
    fn score(&self, query: &Query, site: &Site<'_>) -> f64 {
        self.scorers
            .iter()
            .filter_map(|(scorer, weight)| {
                scorer.score(query, site).map(|score| score.clamp(0.0, 1.0) * weight)
            })
            .sum()
    }

    /// Splits the positions of `sites` into those every filter keeps and the rest.
    fn narrow(&self, query: &Query, sites: &[Site<'_>], rng: &mut dyn RngCore) -> (Vec<usize>, Vec<usize>) {
        let mut kept: Vec<usize> = (0..sites.len()).collect();
        for filter in &self.filters {
            let inner: Vec<Site<'_>> = kept.iter().map(|&i| sites[i]).collect();
            let chosen = filter.keep(query, &inner, rng);
            if !chosen.is_empty() {
                kept = chosen.into_iter().map(|i| kept[i]).collect();
            }
        }
        let rest = (0..sites.len()).filter(|i| !kept.contains(i)).collect();
        (kept, rest)
    }
}
