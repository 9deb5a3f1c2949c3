//! The token-load scorer: how much uncached prompt work an instance would hold with this query
//! (token-aware routing post, lookahead form; llm-d token-load-scorer).

use super::{Scorer, Site};
use crate::domain::Query;

/// Tokens at which a site scores 0: llm-d's default `queueThresholdTokens`.
const FULL_TOKENS: f64 = 4_194_304.0;

/// Rates by uncached prompt tokens in flight plus those this query would add.
#[derive(Clone, Copy, Debug)]
pub struct TokenLoad {
    full_tokens: f64,
}

impl Default for TokenLoad {
    fn default() -> Self {
        Self { full_tokens: FULL_TOKENS }
    }
}

impl Scorer for TokenLoad {
    fn name(&self) -> &'static str {
        "token-load"
    }

    fn score(&self, _query: &Query, site: &Site<'_>) -> Option<f64> {
        let added = lookahead_tokens(site);
        let load = site.view.load.uncached_prefill_tokens as f64 + added;
        Some(1.0 - load.clamp(0.0, self.full_tokens) / self.full_tokens)
    }
}

/// Returns `prompt_tokens · (1 − hit)`: the uncached work this query adds, tokens.
///
/// With an unknown hit nothing may be assumed cached, so the whole prompt counts.
fn lookahead_tokens(site: &Site<'_>) -> f64 {
    let hit = site.hit.unwrap_or(0.0).clamp(0.0, 1.0);
    f64::from(site.load.prompt_tokens) * (1.0 - hit)
}
