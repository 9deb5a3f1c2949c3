//! The SGLang gateway's `cache_aware` rule: where the prompt's beginning went before, unless load is uneven.
//!
//! The rule of sglang's sgl-model-gateway (2026), with two differences. Its radix tree holds characters; the
//! one here holds the prompt's blocks of token ids. It evicts on a timer; here a block makes room when
//! another comes. As there, the bound is an instance's own, a tree is kept for the instances of each model
//! (every path knows the instances it was sent to), and what does not match goes to the least loaded.

use rand::RngCore;
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, PolicyError, RoutingPolicy,
    prefix_index::PrefixIndex,
    registry::{not_negative, parse},
};
use crate::domain::{Placement, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "sglang-cache-aware",
    summary: "where the prompt's beginning went before, unless load is uneven (SGLang)",
    build: |options| Ok(Box::new(SglangCacheAware::new(parse(ENTRY.name, options)?)?)),
};

/// Options of [`SglangCacheAware`]; the defaults are those of the gateway's own code.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Share of the prompt that must match, in `[0,1]`; a match must be larger.
    pub(super) cache_threshold: f64,
    /// Load is uneven where most and least requests in flight differ by more than this,
    pub(super) balance_abs_threshold: u32,
    /// and the most are more than this many times the least.
    pub(super) balance_rel_threshold: f64,
    /// Blocks remembered of an instance; the gateway has as many characters.
    pub(super) max_tree_blocks: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_threshold: 0.5,
            balance_abs_threshold: 32,
            balance_rel_threshold: 1.1,
            max_tree_blocks: 10_000,
        }
    }
}

/// Takes the longest match; ties and everything else go to the fewest requests in flight, then in order.
/// Load is this router's own.
#[derive(Debug)]
pub(super) struct SglangCacheAware {
    options: Options,
    sent: PrefixIndex,
}

impl SglangCacheAware {
    /// Makes it.
    ///
    /// # Errors
    /// [`PolicyError::OutOfRange`].
    pub(super) fn new(options: Options) -> Result<Self, PolicyError> {
        let Options { cache_threshold, balance_rel_threshold, max_tree_blocks, .. } = options;
        not_negative(ENTRY.name, &[("balance_rel_threshold", balance_rel_threshold)])?;
        if !(0.0..=1.0).contains(&cache_threshold) {
            return Err(PolicyError::OutOfRange {
                name: ENTRY.name,
                option: String::from("cache_threshold"),
                value: cache_threshold,
                allowed: "0 to 1",
            });
        }
        Ok(Self { options, sent: PrefixIndex::new(max_tree_blocks) })
    }

    fn uneven(&self, loads: &[u32]) -> bool {
        let most = loads.iter().copied().max().unwrap_or(0);
        let least = loads.iter().copied().min().unwrap_or(0);
        most - least > self.options.balance_abs_threshold
            && f64::from(most) > self.options.balance_rel_threshold * f64::from(least)
    }
}

impl RoutingPolicy for SglangCacheAware {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let all = 0..candidates.len();
        let loads: Vec<u32> = all.clone().map(|i| candidates.view(i).load.requests).collect();
        let least_loaded = all.clone().min_by_key(|&i| loads[i])?;
        if !self.uneven(&loads) && !query.prefix.is_empty() {
            let matched = |i| self.sent.matched_blocks(candidates.position(i), &query.prefix);
            let matches: Vec<usize> = all.clone().map(matched).collect();
            let longest = all.min_by_key(|&i| (std::cmp::Reverse(matches[i]), loads[i]))?;
            let share = matches[longest] as f64 / query.prefix.len() as f64;
            if share > self.options.cache_threshold {
                return Some(Choice::single(longest, Reason::CacheHit));
            }
        }
        Some(Choice::single(least_loaded, Reason::LeastLoad))
    }

    fn dispatched(&self, query: &Query, placement: &Placement) {
        for leg in &placement.legs {
            self.sent.placed(leg.instance, &query.prefix);
        }
    }
}
