//! Time of one decision by step, from describing to reserving: three Qwen3-like instances with moderately
//! loaded snapshots, a prompt of 1000 feature tokens, the bundle of `models/demo`.
//!
//! `whole` contains everything; `route` is `whole` without the two steps of describing; `decide` contains
//! `estimate`. `count` runs chat template and tokenizer of `tests/data/tokenizer`, whose few merges make
//! some four tokens of each one of a real model's.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    hint::black_box,
    path::{Path, PathBuf},
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
    gateway::tokenize::{TokenizerConfig, Tokenizers},
    latency::{EstimatorSetup, estimator},
    pool::{NoSink, Pool, PoolConfig},
    predict::{Predictor, QueryFeatures},
    router::{Attempt, Described, Parts, Router, RouterConfig, Silent, Stage, StageObserver},
    wire::openai::{Request, Shape},
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

/// Returns a path inside the repository.
fn inside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Loads the bundle that ships.
fn predictor() -> Arc<Predictor> {
    let entries = fs::read_dir(inside("models/demo")).unwrap();
    let files: BTreeMap<String, Vec<u8>> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    Arc::new(Predictor::from_bundle(&files).unwrap())
}

fn router(predictor: Arc<Predictor>) -> Router {
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
        predictor: Arc::new(ArcSwap::new(predictor)),
        estimator: (estimator("bea").unwrap().construct)(&setup).into(),
    };
    Router::new(parts, config)
}

/// Who sizes and describes requests, and a chat of 1000 feature tokens.
struct Describer {
    predictor: Arc<Predictor>,
    tokenizers: Tokenizers,
    request: Request,
    body_bytes: usize,
}

impl Describer {
    fn new(predictor: Arc<Predictor>) -> Self {
        let mut content = String::new();
        while predictor.describe(&content).tokens() < 1000 {
            content.push_str("Compare the two accounts of the flood and say which is better supported. ");
        }
        let message = serde_json::json!({"role": "user", "content": content});
        let body = serde_json::json!({"model": "auto", "messages": [message]}).to_string();
        let request = Request::parse(body.as_bytes(), Shape::Chat).unwrap();
        let config = TokenizerConfig { files: Some(inside("tests/data/tokenizer")), engine: false };
        let clock: Arc<dyn Now> = Arc::new(Fixed);
        let tokenizers = Tokenizers::load(&vec![config; MODELS.len()], &clock).unwrap();
        Self { predictor, tokenizers, request, body_bytes: body.len() }
    }

    fn count(&self) -> Vec<PromptCount> {
        self.tokenizers.count(&self.request, self.body_bytes, None)
    }

    fn features(&self) -> Arc<QueryFeatures> {
        Arc::new(self.predictor.describe(&self.request.prompt_text()))
    }

    /// Counts and describes; the query then has the size under a real model's tokenizer.
    fn describe(&self) -> Described {
        black_box(self.count());
        let counts = vec![PromptCount::one(1000, CountSource::Tokenizer); MODELS.len()];
        Described { query: query(counts), features: Some(self.features()), given: None }
    }
}

fn query(prompts: Vec<PromptCount>) -> Query {
    Query {
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
        prompts,
        prefix: [].into(),
    }
}

fn decide(router: &Router, described: &Described, observer: &dyn StageObserver) {
    let attempt = Attempt { id: String::from("attempt"), exclude: &[], number: 1, sink: Arc::new(NoSink) };
    let now: Arc<dyn Now> = Arc::new(Fixed);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    black_box(router.route(described, attempt, &now, &mut rng, observer).unwrap());
}

fn decision(c: &mut Criterion) {
    let predictor = predictor();
    let describer = Describer::new(Arc::clone(&predictor));
    let router = router(predictor);
    let mut group = c.benchmark_group("decision");
    group.bench_function("whole", |b| b.iter(|| decide(&router, &describer.describe(), &Silent)));
    group.bench_function("count", |b| b.iter(|| black_box(describer.count())));
    group.bench_function("features", |b| b.iter(|| black_box(describer.features())));
    let described = describer.describe();
    group.bench_function("route", |b| b.iter(|| decide(&router, &described, &Silent)));
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
