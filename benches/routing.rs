//! What a decision costs: `cargo bench --bench routing -- queued`.

use std::{collections::HashMap, hint::black_box, sync::Arc};

use bear::{
    domain::{
        Basis, BasisSource, BatchTimeCoefficients, Horizon, InstanceId, InstanceSpec, InstanceView, Load,
        ModelIndex, Overhead, Price, QueryLoad, Snapshot, Timestamp,
        snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
    },
    engine::BatchTime,
    latency::{
        EstimatorSetup, estimator,
        replay::{Goal, STEP_LIMIT, Scenario, Scratch, Start, fast, plain},
    },
};
use criterion::{Criterion, criterion_group, criterion_main};

const NOW: Timestamp = Timestamp::from_unix_us(1_764_460_800_000_000);

/// Qwen3-8B on one H100.
const BATCH_TIME: BatchTimeCoefficients =
    BatchTimeCoefficients { b0_s: 6.76e-3, b1_s: 2.0e-5, b2_s: 4.53e-8, b3_s: 2.19e-9, b4_s: 0.0 };

/// Every seat taken by a decoding resident of 1,500 tokens, `waiting` prompts of 2,000 tokens ahead of the
/// query, and `steps` decode steps until the first resident finishes.
fn queued(
    decoding: u32,
    waiting: u32,
    steps: u32,
    async_scheduling: bool,
) -> (Snapshot, HashMap<String, u32>) {
    let running = |i: u32| Resident {
        id: format!("r{i}"),
        prompt_tokens: 1_400,
        computed_tokens: 1_499,
        output_tokens: 100,
        kv_blocks: 94,
        ..Resident::default()
    };
    let queued = |i: u32| Resident { id: format!("w{i}"), prompt_tokens: 2_000, ..Resident::default() };
    let snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        instance: String::from("bench"),
        dp_rank: 0,
        nonce: String::new(),
        seq: 1,
        captured_unix_us: NOW,
        engine: EngineParams {
            scheduler: String::from("vllm-v1"),
            max_num_batched_tokens: 8_192,
            max_num_seqs: decoding,
            block_size: 16,
            num_kv_blocks: 100_000,
            max_model_len: 40_960,
            long_prefill_token_threshold: 0,
            watermark_blocks: 0,
            reserve_full_isl: true,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: QueuePolicy::Fcfs,
            async_scheduling,
        },
        free_kv_blocks: 99_999 - 94 * decoding,
        in_flight: None,
        running: (0..decoding).map(running).collect(),
        waiting: (0..waiting).map(queued).collect(),
        waiting_beyond: WaitingBeyond::default(),
        scheduler_state: None,
    };
    // Residents finish one after the other, so that each admission is an event of its own.
    let remaining = (0..decoding).map(|i| (format!("r{i}"), steps + i));
    let remaining = remaining.chain((0..waiting).map(|i| (format!("w{i}"), 300)));
    let remaining = remaining.collect();
    (snapshot, remaining)
}

/// A query of 900 tokens.
const QUERY: QueryLoad = QueryLoad {
    prompt_tokens: 900,
    cached_tokens: 0,
    cached_blocks_in_use: 0,
    output_tokens: 200,
    priority: 0,
};

fn bench_queued(c: &mut Criterion) {
    let mut group = c.benchmark_group("queued");
    for (name, decoding, waiting, steps, ahead) in [
        ("queued-26", 20, 6, 200, false),
        ("queued-26-async", 20, 6, 200, true),
        ("queued-64", 64, 0, 200, false),
        ("full-256", 256, 0, 3_000, false),
        ("full-256-async", 256, 0, 3_000, true),
        ("full-256-behind-100", 256, 100, 3_000, false),
        ("full-256-behind-100-async", 256, 100, 3_000, true),
        ("idle", 1, 0, 1, false),
    ] {
        let (snapshot, predicted_remaining) = queued(decoding, waiting, steps, ahead);
        let scenario = Scenario {
            snapshot: &snapshot,
            predicted_remaining: &predicted_remaining,
            dispatched: &[],
            query: QUERY,
            now: NOW,
            batch_time: BatchTime::from(&BATCH_TIME),
        };
        let goal = Goal { output_tokens: 1, step_limit: STEP_LIMIT };
        let (replayed, mut scratch) = (plain(&scenario, goal), Scratch::default());
        assert_eq!(replayed, fast(&scenario, goal, &mut scratch));
        let replayed_steps = replayed.map_or(0, |replayed| replayed.steps);
        assert!(replayed_steps >= u64::from(steps), "{name} replays {replayed_steps} steps");
        group.bench_function(format!("{name}/plain"), |b| {
            b.iter(|| black_box(plain(black_box(&scenario), goal)))
        });
        group.bench_function(format!("{name}/fast"), |b| {
            b.iter(|| black_box(fast(black_box(&scenario), goal, &mut scratch)));
        });
        let to_the_end = Goal { output_tokens: u32::MAX, ..goal };
        group.bench_function(format!("{name}/fast-completion"), |b| {
            b.iter(|| black_box(fast(black_box(&scenario), to_the_end, &mut scratch)));
        });
        group.bench_function(format!("{name}/start"), |b| {
            b.iter(|| black_box(Start::new(black_box(&scenario))))
        });
    }
    group.finish();
}

/// A hundred instances of 64 residents, all of which a router without order must estimate.
fn bench_fleet(c: &mut Criterion) {
    let Ok(entry) = estimator("bea") else { return };
    let estimator = (entry.construct)(&EstimatorSetup::default());
    let views: Vec<InstanceView> = (0..100_u32).map(|i| view(64, 100 + i)).collect();
    c.bench_function("fleet-100x64", |b| {
        b.iter(|| {
            let estimate = |view| estimator.estimate(QUERY, view, NOW, Horizon::FirstToken).ttft_s();
            black_box(black_box(&views).iter().map(estimate).fold(f64::INFINITY, f64::min))
        });
    });
}

/// An instance as a router sees it.
fn view(decoding: u32, steps: u32) -> InstanceView {
    let (snapshot, predicted_remaining) = queued(decoding, 0, steps, true);
    let price = Price { input_usd_per_mtok: 0.1, output_usd_per_mtok: 0.1, cached_input_usd_per_mtok: None };
    InstanceView {
        spec: Arc::new(InstanceSpec {
            id: InstanceId::from("m-0"),
            model: ModelIndex(0),
            dp_rank: 0,
            price,
            batch_time: Some(BATCH_TIME),
            overhead: Overhead { ingress_s: 0.002, egress_s: 0.003 },
            effective_prefill_tokens_per_s: None,
            peak_prefill_tokens_per_s: None,
        }),
        basis: Some(Basis {
            source: BasisSource::Snapshot,
            snapshot: Arc::new(snapshot),
            predicted_remaining: Arc::new(predicted_remaining),
            dispatched: [].into(),
        }),
        resident_requests: None,
        load: Load::default(),
        usable: Ok(()),
    }
}

criterion_group!(benches, bench_queued, bench_fleet);
criterion_main!(benches);
