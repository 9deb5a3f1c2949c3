//! One request as the world knows it: what the router may see, and what each model would truly make of it.

use std::sync::Arc;

use crate::predict::QueryFeatures;

/// A request without its arrival time.
#[derive(Clone, Debug)]
pub struct Item {
    /// The task it belongs to, for tables.
    pub task: Arc<str>,
    /// Prompt tokens under every model of the pool.
    pub prompt_tokens: u32,
    /// What the predictors see of its prompt; absent: they fall back to the models' priors.
    pub features: Option<Arc<QueryFeatures>>,
    /// Hashes of its prompt's full blocks of 16 tokens, each chained to the one before; then, where a later
    /// turn shall hit them, those that its answer fills.
    pub block_hashes: Arc<[u64]>,
    /// What each model would answer, in pool order.
    pub answers: Arc<[Answer]>,
    /// The client's cap on output tokens.
    pub max_output_tokens: Option<u32>,
    /// The next turn of the same conversation.
    pub follow_up: Option<Box<FollowUp>>,
}

/// What one model truly makes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Its score in `[0,1]`; absent: nobody judged it (the request then counts in latencies only).
    pub score: Option<f64>,
    /// Its output tokens, at least 1.
    pub output_tokens: u32,
}

/// A turn that comes once the one before is answered.
#[derive(Clone, Debug)]
pub struct FollowUp {
    /// From the end of the answer to the next request, microseconds (a tool runs, a person reads).
    pub after_us: u64,
    /// The next request.
    pub item: Item,
}
