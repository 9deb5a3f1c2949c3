//! A snapshot rebuilt from the ledger alone, for instances whose engine tells nothing or too late.
//!
//! It knows this router's requests only. The capture is put where the oldest request without a first
//! token was expected, so that the replay runs the prefill already done since; answers that stream are
//! taken back to that moment at their mean pace.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    PoolConfig,
    ledger::Entry,
    merge,
    remaining::{Whose, remaining_tokens},
};
use crate::domain::{
    Basis, BasisSource, Dispatched, InstanceSpec, ModelSpec, Snapshot, Timestamp,
    snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
};

/// The parameters assumed of an engine that never told its own: vLLM V1 with memory that never binds.
pub(super) fn assumed_engine(model: &ModelSpec, config: &PoolConfig) -> EngineParams {
    const BLOCK_TOKENS: u32 = 16;
    let sequence_blocks = model.max_model_len_tokens.div_ceil(BLOCK_TOKENS);
    EngineParams {
        scheduler: String::from("vllm-v1"),
        max_num_batched_tokens: config.assumed_max_num_batched_tokens,
        max_num_seqs: config.assumed_max_num_seqs,
        block_size: BLOCK_TOKENS,
        num_kv_blocks: sequence_blocks.saturating_mul(config.assumed_max_num_seqs).saturating_add(1),
        max_model_len: model.max_model_len_tokens,
        long_prefill_token_threshold: 0,
        watermark_blocks: 0,
        reserve_full_isl: true,
        enable_chunked_prefill: true,
        enable_prefix_caching: true,
        policy: QueuePolicy::Fcfs,
        async_scheduling: true,
    }
}

/// Rebuilds the state at about `now` from the requests in flight, in dispatch order; looks back at most
/// `reach`.
pub(super) fn from_ledger(
    spec: &InstanceSpec,
    engine: EngineParams,
    entries: &[Arc<Entry>],
    now: Timestamp,
    reach: Duration,
) -> Basis {
    let oldest = Timestamp::from_unix_us(now.unix_us().saturating_sub(reach.as_micros() as u64));
    let awaited = entries.iter().filter(|entry| !entry.has_first_token()).map(|entry| entry.expected);
    let captured = awaited.min().unwrap_or(now).min(now).max(oldest);
    let mut running: Vec<Resident> = Vec::new();
    let mut remaining: HashMap<String, u32> = HashMap::new();
    let mut dispatched: Vec<Dispatched> = Vec::new();
    for entry in entries.iter().filter(|entry| merge::fits(entry, &engine)) {
        match output_at(entry, captured, now) {
            Some(output_tokens) => {
                let resident = resident(entry, output_tokens, &engine);
                let predicted = f64::from(entry.load.output_tokens);
                let left = remaining_tokens(Whose::Own, predicted, output_tokens, entry.max_output_tokens);
                remaining.insert(resident.id.clone(), left);
                running.push(resident);
            }
            None => dispatched.push(merge::dispatched(entry)),
        }
    }
    let held: u32 = running.iter().map(|resident| resident.kv_blocks).sum();
    let snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        instance: spec.id.as_str().to_owned(),
        dp_rank: spec.dp_rank,
        nonce: String::new(),
        seq: 0,
        captured_unix_us: captured,
        free_kv_blocks: engine.num_kv_blocks.saturating_sub(1).saturating_sub(held),
        engine,
        in_flight: None,
        running,
        waiting: Vec::new(),
        waiting_beyond: WaitingBeyond::default(),
        scheduler_state: None,
    };
    Basis {
        source: BasisSource::Ledger,
        snapshot: Arc::new(snapshot),
        predicted_remaining: Arc::new(remaining),
        dispatched: dispatched.into(),
    }
}

/// Returns the output tokens at `captured` of a request that decodes then; absent where its prefill is
/// to be replayed.
///
/// Of an answer that does not stream nothing is seen before its end: past the reach of the replay it is
/// held to be half way.
fn output_at(entry: &Entry, captured: Timestamp, now: Timestamp) -> Option<u32> {
    let Some(first) = entry.first_token_at() else {
        let lost_sight = !entry.streamed && entry.expected < captured;
        return lost_sight.then(|| (entry.load.output_tokens / 2).max(1));
    };
    if entry.expected > captured {
        return None;
    }
    let produced = f64::from(entry.produced_tokens().max(1));
    let streamed_s = now.since(first).as_secs_f64();
    let since_s = now.since(captured).as_secs_f64();
    let share = if streamed_s > 0.0 { (1.0 - since_s / streamed_s).max(0.0) } else { 1.0 };
    Some(((produced * share).round() as u32).max(1))
}

/// Returns a decoding resident between two steps: all but its newest token computed.
fn resident(entry: &Entry, output_tokens: u32, engine: &EngineParams) -> Resident {
    let room = engine.max_model_len.saturating_sub(entry.load.prompt_tokens).saturating_sub(1).max(1);
    let output_tokens = output_tokens.min(room);
    let computed_tokens = entry.load.prompt_tokens + output_tokens - 1;
    Resident {
        id: entry.id.to_string(),
        prompt_tokens: entry.load.prompt_tokens,
        computed_tokens,
        output_tokens,
        max_tokens: entry.max_output_tokens,
        kv_blocks: computed_tokens.div_ceil(engine.block_size.max(1)),
        priority: entry.load.priority,
        ..Resident::default()
    }
}
