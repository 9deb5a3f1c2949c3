//! NVIDIA Dynamo's KV router: least cost in KV blocks, of the prefill to do and the decoding under way.
//!
//! The rule of ai-dynamo/dynamo's lib/kv-router (2026). What an instance's cache holds is guessed from what
//! this router sent it; host, disk and shared caches are not known, and requests are not held back where all
//! instances are full.

use rand::{Rng, RngCore};
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, PolicyError, RoutingPolicy,
    prefix_index::PrefixIndex,
    rank::draw_least,
    registry::{not_negative, parse},
    state::{Totals, prompt_tokens},
};
use crate::domain::{PREFIX_BLOCK_TOKENS, Placement, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "dynamo",
    summary: "least prefill and decode blocks, less those cached (NVIDIA Dynamo)",
    build: |options| Ok(Box::new(Dynamo::new(parse(ENTRY.name, options)?)?)),
};

/// Options of [`Dynamo`]; the defaults are Dynamo's, but for the bound of the index.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Prefill blocks that a cached block saves.
    pub(super) overlap_credit: f64,
    /// How fast that credit falls with an instance's prefill under way; 0: not at all.
    pub(super) overlap_credit_decay: f64,
    /// Cost of a prefill block against a decode block.
    pub(super) prefill_load_scale: f64,
    /// Cost of a request in flight, decode blocks.
    pub(super) active_request_weight: f64,
    /// Temperature of the softmax over costs; 0: the least cost, drawn among equals.
    pub(super) temperature: f64,
    /// Blocks remembered of an instance: as many as llm-d's router remembers, about an H100's KV cache.
    pub(super) max_index_blocks: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            overlap_credit: 1.0,
            overlap_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            active_request_weight: 0.0,
            temperature: 0.0,
            max_index_blocks: 31_250,
        }
    }
}

/// Takes the least cost, or draws by it.
#[derive(Debug)]
pub(super) struct Dynamo {
    options: Options,
    sent: PrefixIndex,
}

impl Dynamo {
    /// Makes it.
    ///
    /// # Errors
    /// [`PolicyError::OutOfRange`].
    pub(super) fn new(options: Options) -> Result<Self, PolicyError> {
        not_negative(
            ENTRY.name,
            &[
                ("overlap_credit", options.overlap_credit),
                ("overlap_credit_decay", options.overlap_credit_decay),
                ("prefill_load_scale", options.prefill_load_scale),
                ("active_request_weight", options.active_request_weight),
                ("temperature", options.temperature),
            ],
        )?;
        Ok(Self { options, sent: PrefixIndex::new(options.max_index_blocks) })
    }

    /// Returns every candidate's cost, KV blocks.
    pub(super) fn costs(&self, query: &Query, candidates: &dyn Candidates) -> Vec<f64> {
        let block = f64::from(PREFIX_BLOCK_TOKENS);
        let prefilling = |i: usize| candidates.view(i).load.uncached_prefill_tokens as f64 / block;
        let least_prefilling = (0..candidates.len()).map(prefilling).fold(f64::INFINITY, f64::min);
        let cost = |i: usize| {
            let view = candidates.view(i);
            let own_tokens = f64::from(prompt_tokens(query, candidates, i));
            let own_blocks = (own_tokens / block).ceil().max(1.0);
            let overlap = self.sent.matched_blocks(candidates.position(i), &query.prefix) as f64;
            let ahead = (prefilling(i) - least_prefilling) / own_blocks;
            let decay = 1.0 / (1.0 + self.options.overlap_credit_decay * ahead);
            let credit = self.options.overlap_credit * decay * overlap;
            let prefill = (prefilling(i) + own_tokens / block - credit).max(0.0);
            let requests = f64::from(view.load.requests);
            // Where nothing is known of an instance, its requests are held to be as large as this one.
            let active = Totals::of(view)
                .map_or(requests * own_blocks, |totals| (totals.held_tokens as f64 / block).ceil());
            self.options.prefill_load_scale * prefill
                + active
                + own_blocks
                + self.options.active_request_weight * requests
        };
        (0..candidates.len()).map(cost).collect()
    }
}

/// Draws by the softmax of −cost over the spread of costs times the temperature; returns the drawn position
/// with its probability.
fn draw_softmax(costs: &[f64], temperature: f64, rng: &mut dyn RngCore) -> Option<(usize, f64)> {
    let least = costs.iter().copied().min_by(f64::total_cmp)?;
    let spread = costs.iter().copied().fold(least, f64::max) - least;
    let weight =
        |cost: &f64| if spread > 0.0 { (-(cost - least) / (spread * temperature)).exp() } else { 1.0 };
    let weights: Vec<f64> = costs.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut left = rng.random_range(0.0..total);
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    let drawn = drawn.unwrap_or(costs.len() - 1);
    Some((drawn, weights[drawn] / total))
}

impl RoutingPolicy for Dynamo {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, rng: &mut dyn RngCore) -> Option<Choice> {
        let costs = self.costs(query, candidates);
        let (instance, propensity) = match self.options.temperature {
            0.0 => draw_least(&costs, rng)?,
            temperature => draw_softmax(&costs, temperature, rng)?,
        };
        Some(Choice { propensity, ..Choice::single(instance, Reason::Score) })
    }

    fn dispatched(&self, query: &Query, placement: &Placement) {
        for leg in &placement.legs {
            self.sent.placed(leg.instance, &query.prefix);
        }
    }
}
