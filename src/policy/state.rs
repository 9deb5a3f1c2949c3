//! What an instance holds, in totals: for rules that count where BEAR replays.
//!
//! Every router of a comparison counts from the same view: the engine's last snapshot and what this router
//! sent since, which stands behind the waiting ones.

use super::Candidates;
use crate::domain::{Basis, BasisSource, Dispatched, Estimate, InstanceView, Query, snapshot::Resident};

/// Totals of one basis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Totals {
    /// Running requests.
    pub(super) running: u32,
    /// Waiting requests, those sent since the capture included.
    pub(super) waiting: u32,
    /// Most requests running at once.
    pub(super) max_running: u32,
    /// Output tokens that all of them still have, as predicted.
    pub(super) remaining_tokens: f64,
    /// Tokens whose KV is held, and those of waiting sequences.
    pub(super) held_tokens: u64,
    /// The KV cache; absent: the engine told nothing of it.
    pub(super) kv: Option<KvUse>,
}

/// How full a KV cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KvUse {
    /// Blocks, the engine's null block aside.
    pub(super) blocks: u32,
    /// Of these, blocks held.
    pub(super) held_blocks: u32,
    /// Tokens in a block.
    pub(super) block_tokens: u32,
}

impl Totals {
    /// Counts a view; absent where there is no state to count.
    pub(super) fn of(view: &InstanceView) -> Option<Self> {
        view.basis.as_ref().map(Self::of_basis)
    }

    /// Counts a basis. Waiting requests past the listed ones are each held to have the mean remaining
    /// tokens of those listed.
    fn of_basis(basis: &Basis) -> Self {
        let snapshot = &basis.snapshot;
        let remaining = |residents: &[Resident]| -> f64 {
            let of = |resident: &Resident| basis.predicted_remaining.get(&resident.id).copied().unwrap_or(1);
            residents.iter().map(|resident| f64::from(of(resident))).sum()
        };
        let listed = count(snapshot.waiting.len());
        let of_listed = remaining(&snapshot.waiting);
        let beyond = snapshot.waiting_beyond;
        let of_beyond = f64::from(beyond.requests) * of_listed / f64::from(listed.max(1));
        let sent = |tokens: fn(&Dispatched) -> u32| -> u64 {
            basis.dispatched.iter().map(|dispatched| u64::from(tokens(dispatched))).sum()
        };
        let waiting_tokens: u64 =
            snapshot.waiting.iter().map(|r| u64::from(r.prompt_tokens) + u64::from(r.output_tokens)).sum();
        let kv = KvUse {
            blocks: snapshot.engine.num_kv_blocks.saturating_sub(1),
            held_blocks: snapshot
                .engine
                .num_kv_blocks
                .saturating_sub(1)
                .saturating_sub(snapshot.free_kv_blocks),
            block_tokens: snapshot.engine.block_size.max(1),
        };
        let held_tokens = u64::from(kv.held_blocks) * u64::from(kv.block_tokens);
        Self {
            running: count(snapshot.running.len()),
            waiting: listed.saturating_add(beyond.requests).saturating_add(count(basis.dispatched.len())),
            max_running: snapshot.engine.max_num_seqs,
            remaining_tokens: remaining(&snapshot.running)
                + of_listed
                + of_beyond
                + sent(|dispatched| dispatched.output_tokens) as f64,
            held_tokens: held_tokens
                + waiting_tokens
                + beyond.prefill_tokens
                + sent(|dispatched| dispatched.prompt_tokens),
            kv: (basis.source == BasisSource::Snapshot && kv.blocks > 0).then_some(kv),
        }
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Returns the residents, waiting and running; where their count is unknown, this router's own requests
/// in flight stand in for it.
pub(super) fn residents(view: &InstanceView) -> u32 {
    view.resident_requests.unwrap_or(view.load.requests)
}

/// Returns the prompt tokens of a query under candidate `i`'s model.
pub(super) fn prompt_tokens(query: &Query, candidates: &dyn Candidates, i: usize) -> u32 {
    query.prompts.get(candidates.view(i).spec.model.0).map_or(0, |prompt| prompt.tokens)
}

/// The least time an output token, seconds (RouteBalance's floor).
const LEAST_TPOT_S: f64 = 1e-3;

/// Returns the mean time an output token of an estimate to completion, seconds; absent where it did not get
/// that far. An answer of one token has none after its first: the whole answer's time stands for it.
pub(super) fn tpot_s(estimate: &Estimate) -> Option<f64> {
    estimate.tpot_s.or(estimate.e2e_s).map(|s| s.max(LEAST_TPOT_S))
}
