//! A request for several answers is as many sequences in the engine: the first goes by the request's id,
//! the others by `id#1`, `id#2`, ….

use std::{borrow::Cow, collections::HashMap};

use super::ledger::Entry;
use crate::domain::{Dispatched, snapshot::EngineParams};

/// Returns the id of a request's sequence in snapshots.
pub(super) fn sequence_id(request_id: &str, sequence: u32) -> Cow<'_, str> {
    match sequence {
        0 => Cow::Borrowed(request_id),
        _ => Cow::Owned(format!("{request_id}#{sequence}")),
    }
}

/// Returns the request whose sequence would go by that id.
pub(super) fn request_id(sequence_id: &str) -> &str {
    match sequence_id.rsplit_once('#') {
        Some((request_id, number)) if number.parse::<u32>().is_ok() => request_id,
        _ => sequence_id,
    }
}

/// Counts the sequences of a request among the listed residents.
pub(super) fn listed(request_id: &str, sequences: u32, residents: &HashMap<String, u32>) -> usize {
    (0..sequences).filter(|&k| residents.contains_key(&*sequence_id(request_id, k))).count()
}

/// Returns the prompt tokens that a later sequence finds cached: the full blocks of the first one, with
/// at least one token left to compute.
pub(super) fn shared_tokens(prompt_tokens: u32, engine: &EngineParams) -> u32 {
    let block_tokens = engine.block_size.max(1);
    if engine.enable_prefix_caching {
        prompt_tokens.saturating_sub(1) / block_tokens * block_tokens
    } else {
        0
    }
}

/// Returns a request's sequences as the replay takes them, in the engine's order.
pub(super) fn dispatched(entry: &Entry, engine: &EngineParams) -> impl Iterator<Item = Dispatched> {
    let load = entry.load;
    let shared_tokens = shared_tokens(load.prompt_tokens, engine);
    let shared_blocks = shared_tokens / engine.block_size.max(1);
    (0..entry.sequences).map(move |k| {
        let (cached_tokens, cached_blocks_in_use) = match k {
            0 => (load.cached_tokens, load.cached_blocks_in_use),
            _ => (load.cached_tokens.max(shared_tokens), load.cached_blocks_in_use.max(shared_blocks)),
        };
        Dispatched {
            id: sequence_id(&entry.id, k).into_owned(),
            at_unix_us: entry.expected,
            prompt_tokens: load.prompt_tokens,
            cached_tokens,
            cached_blocks_in_use,
            output_tokens: load.output_tokens.max(1),
            priority: load.priority,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_numbered_and_lead_back_to_their_request() {
        for (k, id) in [(0, "a"), (1, "a#1"), (12, "a#12")] {
            assert_eq!(sequence_id("a", k), id);
            assert_eq!(request_id(id), "a");
        }
        assert_eq!((request_id("a#b"), request_id("a#")), ("a#b", "a#"));
    }
}
