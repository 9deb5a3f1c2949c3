//! The pipeline: filters, then weighted scorers, then the picker, as one ranking of a set.

use rand::RngCore;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Filter, MaxScore, Picker, Ranked, Scorer, Site, TokenLoad};
use crate::domain::Query;

/// The `affinity` section of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AffinityConfig {}

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

    /// Composes the token-load pipeline: token load, highest score first.
    #[must_use]
    pub fn token_load() -> Self {
        Self::new(Vec::new(), vec![(Box::new(TokenLoad::default()), 1.0)], Box::new(MaxScore))
    }

    /// Composes the pipeline the configuration asks for.
    #[must_use]
    pub fn from_config(_config: &AffinityConfig) -> Self {
        Self::token_load()
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

    /// Returns the weighted sum of the scorers' ratings, each clamped to [0,1].
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
