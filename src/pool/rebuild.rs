//! A snapshot rebuilt from the ledger alone, for instances whose engine tells nothing or too late.
//!
//! It knows this router's requests only. The capture is put at the end of a step before the oldest
//! request without a first token came, so that the replay does the prefill done since; answers that
//! stream are taken back to that step.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    PoolConfig, answers,
    ledger::Entry,
    merge,
    remaining::{Whose, remaining_tokens},
    steps::TOGETHER_US,
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

/// What the ledger knows when a state is rebuilt.
pub(super) struct Known<'a> {
    /// The requests in flight, in dispatch order.
    pub(super) entries: &'a [Arc<Entry>],
    /// The ends of the engine's latest steps, oldest first.
    pub(super) step_ends: &'a [Timestamp],
    pub(super) now: Timestamp,
    /// How far back the capture may lie.
    pub(super) reach: Duration,
}

/// Rebuilds the state of an instance.
pub(super) fn from_ledger(spec: &InstanceSpec, engine: EngineParams, known: &Known<'_>) -> Basis {
    let egress = Duration::try_from_secs_f64(spec.overhead.egress_s).unwrap_or_default();
    let past = past(known, egress);
    let mut running: Vec<Resident> = Vec::new();
    let mut remaining: HashMap<String, u32> = HashMap::new();
    let mut dispatched: Vec<Dispatched> = Vec::new();
    for entry in known.entries.iter().filter(|entry| merge::fits(entry, &engine)) {
        match past.output(entry) {
            Some(output_tokens) => {
                let predicted = f64::from(entry.load.output_tokens);
                let left = remaining_tokens(Whose::Own, predicted, output_tokens, entry.max_output_tokens);
                for resident in residents(entry, output_tokens, &engine) {
                    remaining.insert(resident.id.clone(), left);
                    running.push(resident);
                }
            }
            None => dispatched.extend(answers::dispatched(entry, &engine)),
        }
    }
    let blocks = running.iter().map(|r| r.kv_blocks_exclusive.unwrap_or(r.kv_blocks));
    let held = blocks.fold(0, u32::saturating_add);
    let snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        instance: spec.id.as_str().to_owned(),
        dp_rank: spec.dp_rank,
        nonce: String::new(),
        seq: 0,
        captured_unix_us: past.captured,
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

/// Finds the moment to rebuild: one at which every request either had its first token or had not come.
///
/// The capture is then the end of the last step but one, since with asynchronous scheduling a step's
/// batch is formed one step ahead; where nothing ran, the moment itself.
fn past<'a>(known: &Known<'a>, egress: Duration) -> Past<'a> {
    let oldest = back(known.now, known.reach);
    let began = |entry: &Entry| entry.first_token_at().map(|first| back(first, egress));
    let mut moment = known.now;
    loop {
        let under_way = known.entries.iter().filter(|entry| began(entry).is_none_or(|at| at > moment));
        match under_way.map(|entry| entry.expected).min() {
            Some(came) if came < moment && moment > oldest => moment = came.max(oldest),
            _ => break,
        }
    }
    let ran = known.entries.iter().any(|entry| began(entry).is_some_and(|at| at <= moment));
    let before = known.step_ends.partition_point(|end| *end <= moment);
    let last_but_one = known.step_ends[..before].get(before.saturating_sub(2)).copied();
    let captured = last_but_one.filter(|_| ran).map_or(moment, |end| end.max(oldest));
    Past { moment, captured, egress, step_ends: known.step_ends }
}

fn back(from: Timestamp, by: Duration) -> Timestamp {
    let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    Timestamp::from_unix_us(from.unix_us().saturating_sub(by_us))
}

/// The moment that is rebuilt.
struct Past<'a> {
    moment: Timestamp,
    captured: Timestamp,
    egress: Duration,
    step_ends: &'a [Timestamp],
}

impl Past<'_> {
    /// Returns the output tokens then of each answer to a request that decoded; absent where its prefill is to be
    /// replayed. Each step since is taken to have given its mean tokens a step.
    ///
    /// Of an answer that does not stream nothing is seen before its end: past the reach of the replay it
    /// is held to be half way.
    fn output(&self, entry: &Entry) -> Option<u32> {
        let Some(first) = entry.first_token_at() else {
            let lost_sight = !entry.streamed && entry.expected < self.captured;
            return lost_sight.then(|| (entry.load.output_tokens / 2).max(1));
        };
        let began = back(first, self.egress);
        if began.unix_us() > self.moment.unix_us() + TOGETHER_US {
            return None;
        }
        let since = |at: Timestamp| self.step_ends.len() - self.step_ends.partition_point(|end| *end <= at);
        let steps = since(back(began, Duration::from_micros(TOGETHER_US)));
        let produced = entry.produced_tokens_each();
        // Where the first step is no longer remembered, each gave one token.
        let remembered = self.step_ends.first().is_some_and(|oldest| *oldest <= began);
        let tokens_a_step = if remembered && steps > 0 { produced / steps as f64 } else { 1.0 };
        let output = produced - tokens_a_step * since(self.captured) as f64;
        Some((output.round() as u32).max(1))
    }
}

/// Returns the decoding residents of a request between two steps: all but the newest token computed.
/// Those after the first share the full blocks of the prompt with it.
fn residents(
    entry: &Entry,
    output_tokens: u32,
    engine: &EngineParams,
) -> impl Iterator<Item = Resident> + use<> {
    let room = engine.max_model_len.saturating_sub(entry.load.prompt_tokens).saturating_sub(1).max(1);
    let output_tokens = output_tokens.min(room);
    let computed_tokens = entry.load.prompt_tokens + output_tokens - 1;
    let block_tokens = engine.block_size.max(1);
    let kv_blocks = computed_tokens.div_ceil(block_tokens);
    let shared_blocks = answers::shared_tokens(entry.load.prompt_tokens, engine) / block_tokens;
    let first = Resident {
        id: entry.id.to_string(),
        prompt_tokens: entry.load.prompt_tokens,
        computed_tokens,
        output_tokens,
        max_tokens: entry.max_output_tokens,
        kv_blocks,
        priority: entry.load.priority,
        ..Resident::default()
    };
    (0..entry.sequences).map(move |k| Resident {
        id: answers::sequence_id(&first.id, k).into_owned(),
        kv_blocks_exclusive: (k > 0).then(|| kv_blocks.saturating_sub(shared_blocks)),
        ..first.clone()
    })
}
