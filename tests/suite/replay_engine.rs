//! The replay of a snapshot against the engine that published it: with true lengths and eq. 12 as the
//! truth, the estimate is the outcome, to the microsecond.

use std::{collections::HashMap, sync::Arc};

use bear::{
    domain::{
        BatchTimeCoefficients, QueryLoad, Snapshot, Timestamp,
        snapshot::{EngineParams, QueuePolicy, Resident},
    },
    engine::{ATTOSECONDS_PER_US, BatchShape, BatchTime, Engine, Event, NewRequest, SnapshotMeta},
    latency::replay::{Ended, Goal, Scenario, plain},
};
use proptest::prelude::*;

/// Coefficients in whole microseconds, so that the engine's clock loses nothing.
const TRUTH: BatchTimeCoefficients =
    BatchTimeCoefficients { b0_s: 1e-3, b1_s: 1e-5, b2_s: 1e-6, b3_s: 1e-6, b4_s: 1e-4 };

const T0_US: u64 = 1_764_460_800_000_000;

fn params() -> impl Strategy<Value = EngineParams> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>());
    let numbers = (prop_oneof![Just(0_u32), Just(30)], 0..4_u32, 1..6_u32);
    (switches, numbers).prop_map(|((isl, ahead, tight), (threshold, watermark, seats))| EngineParams {
        scheduler: String::from("vllm-v1"),
        max_num_batched_tokens: 100,
        max_num_seqs: seats,
        block_size: 10,
        num_kv_blocks: if tight { 31 } else { 300 },
        max_model_len: 300,
        long_prefill_token_threshold: threshold,
        watermark_blocks: watermark,
        reserve_full_isl: isl,
        enable_chunked_prefill: true,
        // A preempted request would find its blocks again, which counts do not tell.
        enable_prefix_caching: false,
        policy: QueuePolicy::Fcfs,
        async_scheduling: ahead,
    })
}

/// One engine in virtual time.
struct Simulated {
    engine: Engine,
    batch: Option<BatchShape>,
    now_us: u64,
}

impl Simulated {
    fn begin(&mut self) {
        self.batch = self.engine.begin(Timestamp::from_unix_us(self.now_us));
    }

    fn duration_us(&self) -> u64 {
        let work = self.batch.as_ref().map(|batch| batch.work).unwrap_or_default();
        u64::try_from(BatchTime::from(&TRUTH).duration(&work) / ATTOSECONDS_PER_US).unwrap()
    }

    /// Lets the running batch end and returns its events; an idle engine stays idle.
    fn end(&mut self) -> Vec<Event> {
        if self.batch.is_some() {
            self.now_us += self.duration_us();
        }
        self.engine.end()
    }

    fn admits(&self, id: &str) -> bool {
        self.batch.iter().flat_map(|batch| &batch.members).any(|m| &*m.id == id && m.admission.is_some())
    }
}

fn new_request(id: &str, prompt_tokens: u32, output_tokens: u32) -> NewRequest {
    let id = id.to_owned();
    NewRequest { id, prompt_tokens, output_tokens, max_tokens: None, priority: 0, block_hashes: [].into() }
}

/// Serves the query for real: returns wait and TTFT in microseconds.
fn serve(mut simulated: Simulated, query: NewRequest, arrives_us: u64) -> (u64, u64) {
    let (mut query, mut wait_us) = (Some(query), None);
    loop {
        if simulated.batch.is_some() {
            let tokens = simulated.end();
            if tokens.iter().any(|event| matches!(event, Event::Token { id, .. } if &**id == "query")) {
                return (wait_us.unwrap(), simulated.now_us - arrives_us);
            }
        } else {
            simulated.now_us = simulated.now_us.max(arrives_us);
        }
        if arrives_us <= simulated.now_us {
            query.take().into_iter().for_each(|query| simulated.engine.add(query).unwrap());
        }
        simulated.begin();
        if wait_us.is_none() && simulated.admits("query") {
            wait_us = Some(simulated.now_us - arrives_us);
        }
    }
}

/// Returns the true remaining lengths of the residents of a snapshot.
fn remaining(snapshot: &Snapshot, lengths: &[(u32, u32)]) -> HashMap<String, u32> {
    let residents = snapshot.running.iter().chain(&snapshot.waiting);
    residents.map(|r| (r.id.clone(), lengths[r.id.parse::<usize>().unwrap()].1 - r.output_tokens)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_estimate_with_the_truth_is_the_outcome(
        params in params(),
        lengths in proptest::collection::vec((1..230_u32, 1..60_u32), 0..12),
        steps in 0..40_usize,
        into_the_batch in 0.0..1.0_f64,
        later_us in prop_oneof![Just(0_u64), 0..60_000_u64],
        prompt_tokens in 1..299_u32,
    ) {
        let engine = Engine::with_block_cache(params).unwrap();
        let mut simulated = Simulated { engine, batch: None, now_us: T0_US };
        for (i, &(prompt, output)) in lengths.iter().enumerate() {
            simulated.engine.add(new_request(&i.to_string(), prompt, output)).unwrap();
        }
        simulated.begin();
        for _ in 0..steps {
            simulated.end();
            simulated.begin();
        }
        let captured_us = simulated.now_us + (into_the_batch * simulated.duration_us() as f64) as u64;
        let snapshot = Arc::new(simulated.engine.snapshot(SnapshotMeta {
            instance: String::from("m"),
            dp_rank: 0,
            nonce: String::new(),
            captured: Timestamp::from_unix_us(captured_us),
        }));
        let arrives_us = captured_us + later_us;
        let scenario = Scenario {
            snapshot: &snapshot,
            predicted_remaining: &remaining(&snapshot, &lengths),
            dispatched: &[],
            query: QueryLoad {
                prompt_tokens,
                cached_tokens: 0,
                cached_blocks_in_use: 0,
                output_tokens: 3,
                priority: 0,
            },
            now: Timestamp::from_unix_us(arrives_us),
            batch_time: BatchTime::from(&TRUTH),
        };
        let estimate = plain(&scenario, Goal { output_tokens: 1, step_limit: 100_000 }).unwrap();
        let us = |attoseconds: Option<i128>| u64::try_from(attoseconds.unwrap() / ATTOSECONDS_PER_US).unwrap();
        prop_assert_eq!(estimate.ended, Ended::Reached);
        let served = serve(simulated, new_request("query", prompt_tokens, 3), arrives_us);
        prop_assert_eq!((us(estimate.wait), us(estimate.ttft)), served);
    }
}

/// Returns a synchronous snapshot of decoding residents with ample memory, and lengths nobody reaches.
fn ample(running: u32, waiting: u32) -> (Snapshot, HashMap<String, u32>) {
    let engine = EngineParams {
        scheduler: String::from("vllm-v1"),
        max_num_batched_tokens: 500,
        max_num_seqs: 64,
        block_size: 16,
        num_kv_blocks: 100_000,
        max_model_len: 8_000,
        long_prefill_token_threshold: 0,
        watermark_blocks: 0,
        reserve_full_isl: true,
        enable_chunked_prefill: true,
        enable_prefix_caching: true,
        policy: QueuePolicy::Fcfs,
        async_scheduling: false,
    };
    let simulated = Engine::with_block_cache(engine).unwrap();
    let captured = Timestamp::from_unix_us(T0_US);
    let meta = SnapshotMeta { instance: String::new(), dp_rank: 0, nonce: String::new(), captured };
    let mut snapshot = simulated.snapshot(meta);
    let resident = |id: String, computed_tokens: u32| Resident {
        id,
        prompt_tokens: 300,
        computed_tokens,
        output_tokens: u32::from(computed_tokens > 0),
        kv_blocks: computed_tokens.div_ceil(16),
        ..Resident::default()
    };
    snapshot.running = (0..running).map(|i| resident(format!("r{i}"), 300)).collect();
    snapshot.waiting = (0..waiting).map(|i| resident(format!("w{i}"), 0)).collect();
    let residents = snapshot.running.iter().chain(&snapshot.waiting);
    let remaining = residents.map(|r| (r.id.clone(), 7_000)).collect();
    (snapshot, remaining)
}

proptest! {
    #[test]
    fn more_load_never_lowers_an_estimate(running in 0..20_u32, waiting in 0..20_u32, prompt_tokens in 1..3_000_u32) {
        let ttft = |running, waiting| {
            let (snapshot, predicted_remaining) = ample(running, waiting);
            let query = QueryLoad {
                prompt_tokens,
                cached_tokens: 0,
                cached_blocks_in_use: 0,
                output_tokens: 3,
                priority: 0,
            };
            let scenario = Scenario {
                snapshot: &snapshot,
                predicted_remaining: &predicted_remaining,
                dispatched: &[],
                query,
                now: snapshot.captured_unix_us,
                batch_time: BatchTime::from(&TRUTH),
            };
            plain(&scenario, Goal { output_tokens: 1, step_limit: 100_000 }).unwrap().ttft.unwrap()
        };
        prop_assert!(ttft(running + 1, waiting) >= ttft(running, waiting));
        prop_assert!(ttft(running, waiting + 1) > ttft(running, waiting));
    }
}

/// Checks that the blocks of a snapshot add up: those that are neither free nor anyone's alone are shared
/// by two running requests at least.
fn blocks_add_up(snapshot: &Snapshot) -> Result<(), TestCaseError> {
    let shared = snapshot.running.iter().map(|r| r.kv_blocks - r.kv_blocks_exclusive.unwrap());
    let alone: u32 = snapshot.running.iter().filter_map(|r| r.kv_blocks_exclusive).sum();
    let rest =
        i64::from(snapshot.engine.num_kv_blocks - 1) - i64::from(snapshot.free_kv_blocks) - i64::from(alone);
    let (most, sum) = (shared.clone().max().unwrap_or(0), shared.sum::<u32>());
    prop_assert!(rest >= i64::from(most) && 2 * rest <= i64::from(sum), "{rest} shared in {snapshot:?}");
    let in_use = snapshot.waiting.iter().map(|w| w.cached_blocks_in_use).max().unwrap_or(0);
    prop_assert!(i64::from(in_use) <= i64::from(alone) + rest, "{in_use} in use in {snapshot:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn shared_blocks_of_those_who_leave_are_counted(
        params in params(),
        requests in proptest::collection::vec((0..2_u64, 1..230_u32, 1..12_u32), 1..12),
        (abort_at, aborted) in (0..40_usize, 0..12_usize),
    ) {
        let params = EngineParams { enable_prefix_caching: true, ..params };
        let mut engine = Engine::with_block_cache(params).unwrap();
        for (i, &(family, prompt, output)) in requests.iter().enumerate() {
            // Prompts of a family are prefixes of each other.
            let block_hashes = (0..u64::from(prompt / 10)).map(|block| 1_000 * family + block).collect();
            engine.add(NewRequest { block_hashes, ..new_request(&i.to_string(), prompt, output) }).unwrap();
        }
        let captured = Timestamp::from_unix_us(T0_US);
        let meta = || SnapshotMeta { instance: String::new(), dp_rank: 0, nonce: String::new(), captured };
        for step in 0.. {
            let begun = engine.begin(captured).is_some();
            blocks_add_up(&engine.snapshot(meta()))?;
            if step == abort_at {
                engine.abort(&aborted.to_string());
                blocks_add_up(&engine.snapshot(meta()))?;
            }
            engine.end();
            blocks_add_up(&engine.snapshot(meta()))?;
            if !begun {
                break;
            }
        }
        prop_assert_eq!(engine.free_blocks(), engine.snapshot(meta()).engine.num_kv_blocks - 1);
    }
}
