//! Time of one decision by step: three Qwen3-like instances with moderately loaded snapshots, a prompt of
//! 1000 tokens. `decide` contains `estimate`.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    hint::black_box,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use bear::{
    affinity::{AffinityConfig, Pipeline},
    domain::{
        BatchTimeCoefficients, Bounds, Capabilities, CountSource, Endpoint, InstanceId, InstanceSpec,
        ModelId, ModelIndex, ModelSpec, Named, Needs, Now, Overhead, Price, PromptCount, Query, Snapshot,
        Timestamp, Tradeoff,
        snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
    },
    latency::{EstimatorSetup, estimator},
    pool::{NoSink, Pool, PoolConfig},
    predict::Predictor,
    router::{Attempt, Described, Parts, Router, RouterConfig, Silent, Stage, StageObserver},
};
use criterion::{Criterion, criterion_group, criterion_main};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const CAPTURED_US: u64 = 1_764_460_800_000_000;

/// Name, parameters (billions), batch time (s), KV tokens, USD a million tokens, mean score, running.
type Row = (&'static str, f64, [f64; 4], u32, [f64; 2], f64, u32);

const MODELS: [Row; 3] = [
    ("qwen3-0.6b", 0.6, [2.4e-3, 3.3e-6, 3.74e-8, 5.1e-10], 617_000, [0.044, 0.173], 0.3531, 25),
    ("qwen3-8b", 8.2, [6.76e-3, 2.0e-5, 4.53e-8, 2.19e-9], 376_800, [0.072, 0.287], 0.7876, 25),
    ("qwen3-32b", 32.8, [14.5e-3, 5.0e-5, 4.27e-8, 2.33e-9], 299_000, [0.287, 0.640], 0.8954, 25),
];

/// Ten milliseconds after the capture.
struct Fixed;

impl Now for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(CAPTURED_US + 10_000)
    }
}

/// Adds up the time of one step.
struct Watch {
    step: Stage,
    state: RefCell<(Option<Instant>, Duration)>,
}

impl StageObserver for Watch {
    fn enter(&self, stage: Stage) {
        if stage == self.step {
            self.state.borrow_mut().0 = Some(Instant::now());
        }
    }

    fn leave(&self, stage: Stage) {
        if stage == self.step {
            let mut state = self.state.borrow_mut();
            let passed = state.0.take().map_or(Duration::ZERO, |since| since.elapsed());
            state.1 += passed;
        }
    }
}

fn snapshot(row: &Row) -> Snapshot {
    let num_kv_blocks = row.3 / 16;
    let running = (0..row.6).map(|n| {
        let (prompt_tokens, output_tokens) = (200 + 40 * n, 1 + 7 * n);
        let computed_tokens = prompt_tokens + output_tokens - 1;
        Resident {
            id: format!("other-{n}"),
            prompt_tokens,
            computed_tokens,
            output_tokens,
            max_tokens: Some(2048),
            kv_blocks: computed_tokens.div_ceil(16),
            ..Resident::default()
        }
    });
    let running: Vec<Resident> = running.collect();
    let held: u32 = running.iter().map(|resident| resident.kv_blocks).sum();
    Snapshot {
        schema: SCHEMA.to_owned(),
        instance: row.0.to_owned(),
        dp_rank: 0,
        nonce: String::from("bench"),
        seq: 1,
        captured_unix_us: Timestamp::from_unix_us(CAPTURED_US),
        engine: EngineParams {
            scheduler: String::from("vllm-v1"),
            max_num_batched_tokens: 8192,
            max_num_seqs: 256,
            block_size: 16,
            num_kv_blocks,
            max_model_len: 40_960,
            long_prefill_token_threshold: 0,
            watermark_blocks: 0,
            reserve_full_isl: true,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: QueuePolicy::Fcfs,
            async_scheduling: true,
        },
        free_kv_blocks: num_kv_blocks - 1 - held,
        in_flight: None,
        running,
        waiting: Vec::new(),
        waiting_beyond: WaitingBeyond::default(),
        scheduler_state: None,
    }
}

/// The bundle that ships, where it is there; else the prior.
fn predictor() -> Predictor {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    let Ok(entries) = fs::read_dir(folder) else { return Predictor::prior() };
    let files: BTreeMap<String, Vec<u8>> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, fs::read(entry.path()).ok()?)))
        .collect();
    Predictor::from_bundle(&files).unwrap_or_else(|_| Predictor::prior())
}

fn router(predictor: Predictor) -> Router {
    let price = |usd: [f64; 2]| Price {
        input_usd_per_mtok: usd[0],
        output_usd_per_mtok: usd[1],
        cached_input_usd_per_mtok: None,
    };
    let models = MODELS.map(|(id, parameters_b, _, _, usd, score, _)| ModelSpec {
        id: ModelId::from(id),
        parameters_b,
        max_model_len_tokens: 40_960,
        price: price(usd),
        capabilities: Capabilities::default(),
        prior_accuracy: Some(score),
        prior_output_tokens: Some(200.0),
    });
    let instances = MODELS.iter().enumerate().map(|(m, (id, _, b, _, usd, ..))| InstanceSpec {
        id: InstanceId::from(*id),
        model: ModelIndex(m),
        dp_rank: 0,
        price: price(*usd),
        batch_time: Some(BatchTimeCoefficients { b0_s: b[0], b1_s: b[1], b2_s: b[2], b3_s: b[3], b4_s: 0.0 }),
        overhead: Overhead { ingress_s: 0.004, egress_s: 0.002 },
        effective_prefill_tokens_per_s: None,
        peak_prefill_tokens_per_s: None,
    });
    let pool = Pool::new(models.to_vec(), instances.collect(), PoolConfig::default()).unwrap();
    for (i, row) in MODELS.iter().enumerate() {
        pool.publish(i, snapshot(row), Timestamp::from_unix_us(CAPTURED_US)).unwrap();
    }
    let setup = EstimatorSetup {
        parameters_b: MODELS.map(|(_, parameters_b, ..)| parameters_b).into(),
        ..EstimatorSetup::default()
    };
    let config = RouterConfig::default();
    let parts = Parts {
        pool: Arc::new(pool),
        policy: config.policy.build().unwrap(),
        affinity: Pipeline::from_config(&AffinityConfig::default()).unwrap(),
        predictor: Arc::new(ArcSwap::from_pointee(predictor)),
        estimator: (estimator("bea").unwrap().construct)(&setup).into(),
    };
    Router::new(parts, config)
}

fn described(predictor: &Predictor) -> Described {
    let prompt =
        "Compare the two accounts of the flood and say which of them is better supported. ".repeat(60);
    let query = Query {
        id: String::from("q"),
        arrived: Fixed.now(),
        tenant: None,
        priority: 0,
        adapter: None,
        endpoint: Endpoint::Chat,
        named: Named::Virtual,
        requested_model: String::from("auto"),
        needs: Needs::default(),
        streamed: true,
        max_output_tokens: Some(512),
        choices: 1,
        // Only the small model is in time: every instance is estimated.
        ttft_target: Some(Duration::from_millis(25)),
        tpot_target: None,
        bounds: Bounds::default(),
        tradeoff: Tradeoff { lambda_per_usd: 500.0, delta_per_s: 0.0 },
        prompts: vec![PromptCount::one(1000, CountSource::Tokenizer); 3],
    };
    Described { query, features: Some(Arc::new(predictor.describe(&prompt))) }
}

fn decide(router: &Router, described: &Described, observer: &dyn StageObserver) {
    let attempt = Attempt { id: String::from("attempt"), exclude: &[], number: 1, sink: Arc::new(NoSink) };
    let now: Arc<dyn Now> = Arc::new(Fixed);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    black_box(router.route(described, attempt, &now, &mut rng, observer).unwrap());
}

fn decision(c: &mut Criterion) {
    let predictor = predictor();
    let described = described(&predictor);
    let router = router(predictor);
    let mut group = c.benchmark_group("decision");
    group.bench_function("whole", |b| b.iter(|| decide(&router, &described, &Silent)));
    let steps =
        [Stage::Eligible, Stage::Predict, Stage::Observe, Stage::Estimate, Stage::Decide, Stage::Reserve];
    for step in steps {
        group.bench_function(step.label(), |b| {
            b.iter_custom(|decisions| {
                let watch = Watch { step, state: RefCell::default() };
                (0..decisions).for_each(|_| decide(&router, &described, &watch));
                watch.state.into_inner().1
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decision);
criterion_main!(benches);
