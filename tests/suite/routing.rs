//! The router over three Qwen3-like instances: real estimates on synthetic snapshots.

use std::{
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bear::{
    affinity::{AffinityConfig, Pipeline},
    domain::{
        BatchTimeCoefficients, Bounds, Candidate, Capabilities, CountSource, Ending, Endpoint, InstanceId,
        InstanceSpec, Load, ModelId, ModelIndex, ModelSpec, Named, Needs, Now, Outcome, Overhead, Price,
        PromptCount, Query, Reason, Snapshot, Timestamp, Tradeoff,
        snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
    },
    latency::{EstimatorSetup, estimator},
    pool::{NoSink, Pool, PoolConfig, SettleSink},
    predict::{Predictor, QueryFeatures},
    router::{Attempt, Described, Parts, Routed, Router, RouterConfig, Silent},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const START_US: u64 = 1_764_460_800_000_000;

/// Name, parameters (billions), batch time in seconds, KV tokens (specs of the three Qwen3 models on
/// H100), prices (USD a million, the paper's table 1) and mean score (table 2).
type Row = (&'static str, f64, [f64; 4], u32, [f64; 2], f64);

const MODELS: [Row; 3] = [
    ("qwen3-0.6b", 0.6, [2.4e-3, 3.3e-6, 3.74e-8, 5.1e-10], 617_000, [0.044, 0.173], 0.3531),
    ("qwen3-8b", 8.2, [6.76e-3, 2.0e-5, 4.53e-8, 2.19e-9], 376_800, [0.072, 0.287], 0.7876),
    ("qwen3-32b", 32.8, [14.5e-3, 5.0e-5, 4.27e-8, 2.33e-9], 299_000, [0.287, 0.640], 0.8954),
];

const SMALL: usize = 0;
const LARGE: usize = 2;

static PRIOR: LazyLock<Arc<Predictor>> = LazyLock::new(|| Arc::new(Predictor::prior()));
static FEATURES: LazyLock<Arc<QueryFeatures>> =
    LazyLock::new(|| Arc::new(PRIOR.describe("Summarise the report below in three sentences.")));

struct Clock(AtomicU64);

impl Clock {
    fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms * 1000, Ordering::Relaxed);
    }
}

impl Now for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.0.load(Ordering::Relaxed))
    }
}

struct Fleet {
    router: Router,
    clock: Arc<Clock>,
    attempts: AtomicU64,
}

impl Fleet {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl Fn(&mut InstanceSpec)) -> Self {
        let price = |usd: [f64; 2]| Price {
            input_usd_per_mtok: usd[0],
            output_usd_per_mtok: usd[1],
            cached_input_usd_per_mtok: None,
        };
        let models = MODELS.map(|(id, parameters_b, _, _, usd, score)| ModelSpec {
            id: ModelId::from(id),
            parameters_b,
            max_model_len_tokens: 40_960,
            price: price(usd),
            capabilities: Capabilities::default(),
            prior_accuracy: Some(score),
            prior_output_tokens: Some(200.0),
        });
        let instances = MODELS.iter().enumerate().map(|(m, (id, _, b, _, usd, _))| {
            let mut spec = InstanceSpec {
                id: InstanceId::from(format!("{id}-0").as_str()),
                model: ModelIndex(m),
                dp_rank: 0,
                price: price(*usd),
                batch_time: Some(BatchTimeCoefficients {
                    b0_s: b[0],
                    b1_s: b[1],
                    b2_s: b[2],
                    b3_s: b[3],
                    b4_s: 0.0,
                }),
                overhead: Overhead { ingress_s: 0.004, egress_s: 0.002 },
                effective_prefill_tokens_per_s: None,
                peak_prefill_tokens_per_s: None,
            };
            change(&mut spec);
            spec
        });
        let setup = EstimatorSetup {
            parameters_b: MODELS.map(|(_, parameters_b, ..)| parameters_b).into(),
            ..EstimatorSetup::default()
        };
        let config = RouterConfig::default();
        let parts = Parts {
            pool: Arc::new(Pool::new(models.to_vec(), instances.collect(), PoolConfig::default()).unwrap()),
            policy: config.policy.build().unwrap(),
            affinity: Pipeline::from_config(&AffinityConfig::default()).unwrap(),
            predictor: Arc::new(ArcSwap::new(Arc::clone(&PRIOR))),
            estimator: (estimator("bea").unwrap().construct)(&setup).into(),
        };
        let clock = Arc::new(Clock(AtomicU64::new(START_US)));
        Self { router: Router::new(parts, config), clock, attempts: AtomicU64::new(0) }
    }

    /// Publishes a state with `decoding` residents of 500 tokens and `waiting` prompts of 2000.
    fn publish(&self, i: usize, decoding: u32, waiting: u32) {
        let resident = |n: u32, prompt_tokens: u32, output_tokens: u32| {
            let computed_tokens = if output_tokens > 0 { prompt_tokens + output_tokens - 1 } else { 0 };
            Resident {
                id: format!("other-{n}"),
                prompt_tokens,
                computed_tokens,
                output_tokens,
                kv_blocks: computed_tokens.div_ceil(16),
                ..Resident::default()
            }
        };
        let num_kv_blocks = MODELS[i].3 / 16;
        let snapshot = Snapshot {
            schema: SCHEMA.to_owned(),
            instance: MODELS[i].0.to_owned(),
            dp_rank: 0,
            nonce: String::from("n"),
            seq: (self.clock.now().unix_us() - START_US) / 1000,
            captured_unix_us: self.clock.now(),
            engine: engine(num_kv_blocks),
            free_kv_blocks: num_kv_blocks - 1 - decoding * 34,
            in_flight: None,
            running: (0..decoding).map(|n| resident(n, 500, 40)).collect(),
            waiting: (0..waiting).map(|n| resident(decoding + n, 2000, 0)).collect(),
            waiting_beyond: WaitingBeyond::default(),
            scheduler_state: None,
        };
        self.router.pool().publish(i, snapshot, self.clock.now()).unwrap();
    }

    fn query(&self, target_ms: Option<u64>) -> Described {
        let query = Query {
            id: String::from("q"),
            arrived: self.clock.now(),
            tenant: None,
            priority: 0,
            adapter: None,
            endpoint: Endpoint::Chat,
            named: Named::Virtual,
            requested_model: String::from("auto"),
            needs: Needs::default(),
            streamed: true,
            max_output_tokens: None,
            choices: 1,
            ttft_target: target_ms.map(Duration::from_millis),
            tpot_target: None,
            bounds: Bounds::default(),
            // At this λ the largest model is best where it is in time.
            tradeoff: Tradeoff { lambda_per_usd: 100.0, delta_per_s: 0.0 },
            prompts: vec![PromptCount::one(1000, CountSource::Tokenizer); 3],
            prefix: [].into(),
        };
        Described { query, features: Some(Arc::clone(&FEATURES)), given: None }
    }

    fn route(&self, described: &Described) -> Routed {
        self.route_into(described, Arc::new(NoSink))
    }

    fn route_into(&self, described: &Described, sink: Arc<dyn SettleSink>) -> Routed {
        let n = self.attempts.fetch_add(1, Ordering::Relaxed);
        let attempt = Attempt { id: format!("a{n}"), exclude: &[], number: 1, sink };
        let now: Arc<dyn Now> = Arc::clone(&self.clock) as Arc<dyn Now>;
        let mut rng = ChaCha8Rng::seed_from_u64(n);
        self.router.route(described, attempt, &now, &mut rng, &Silent).unwrap()
    }

    fn rows(&self, described: &Described) -> Vec<Candidate> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        self.router.dry_run(described, self.clock.now(), &mut rng).unwrap().candidates
    }

    fn ttfts_ms(&self) -> [f64; 3] {
        let rows = self.rows(&self.query(None));
        [0, 1, 2].map(|i| rows[i].ttft_s.unwrap() * 1e3)
    }
}

fn engine(num_kv_blocks: u32) -> EngineParams {
    EngineParams {
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
    }
}

/// Routes `n` requests that arrive at once and returns each model's share.
fn shares(n: usize) -> [f64; 3] {
    let fleet = Fleet::new();
    (0..3).for_each(|i| fleet.publish(i, 10, 0));
    let query = fleet.query(Some(300));
    let routed: Vec<Routed> = (0..n).map(|_| fleet.route(&query)).collect();
    [0, 1, 2].map(|i| routed.iter().filter(|r| r.instance == i).count() as f64 / n as f64)
}

#[test]
fn as_load_rises_queries_move_to_smaller_models() {
    let (calm, busy, rush) = (shares(3), shares(12), shares(80));
    assert_eq!(calm, [0.0, 0.0, 1.0], "the best model takes a few at once");
    assert!(busy[1] > 0.3 && busy[SMALL] == 0.0, "the middle one takes what it cannot: {busy:?}");
    assert!(rush[SMALL] > 0.3, "the small one takes what neither can: {rush:?}");
    assert!(calm[LARGE] > busy[LARGE] && busy[LARGE] > rush[LARGE], "{calm:?} {busy:?} {rush:?}");
}

#[test]
fn an_impossible_target_goes_to_the_least_ttft() {
    let fleet = Fleet::new();
    (0..3).for_each(|i| fleet.publish(i, 10, 0));
    fleet.publish(SMALL, 10, 60);
    let routed = fleet.route(&fleet.query(Some(1)));
    let rows = &routed.decision.candidates;
    let least = rows.iter().filter_map(|row| row.ttft_s).fold(f64::INFINITY, f64::min);
    assert_eq!(routed.decision.reason, Reason::LeastTtft);
    assert_eq!(routed.decision.chosen().unwrap().ttft_s, Some(least));
    assert_eq!(routed.instance, 1, "the small model's queue is long");
    assert!(rows.iter().all(|row| row.feasible != Some(true)));
    assert_eq!(rows.iter().filter(|row| row.interchangeable).count(), 1);
}

#[test]
fn the_second_of_two_decisions_sees_the_first_ones_reservation() {
    let fleet = Fleet::new();
    (0..3).for_each(|i| fleet.publish(i, 0, 0));
    let before = fleet.ttfts_ms();
    let first = fleet.route(&fleet.query(None));
    assert_eq!(first.instance, LARGE);
    let after = fleet.ttfts_ms();
    // One more prompt of 1000 tokens in the same batch: 1000·50 µs and 500,500 pairs at 2.33 ns.
    let added = after[LARGE] - before[LARGE];
    assert!((added - 51.166).abs() < 0.01, "{added} ms");
    assert_eq!((after[0], after[1]), (before[0], before[1]));
    first.reservation.finish(Ending::Complete);
    assert_eq!(fleet.ttfts_ms(), before);
}

#[test]
fn an_estimate_says_what_it_rests_on_and_how_old_that_is() {
    let fleet = Fleet::with(|spec| {
        if spec.model == ModelIndex(1) {
            spec.batch_time = None;
        }
    });
    fleet.publish(SMALL, 10, 0);
    fleet.clock.advance_ms(400);
    let rows = fleet.rows(&fleet.query(None));
    let sources: Vec<&str> = rows.iter().map(|row| row.source.as_deref().unwrap()).collect();
    assert_eq!(sources, ["bea", "guess", "bea-ledger"]);
    assert!((rows[SMALL].age_s.unwrap() - 0.4).abs() < 1e-9);
    fleet.clock.advance_ms(1700);
    assert_eq!(fleet.rows(&fleet.query(None))[SMALL].source.as_deref(), Some("bea-ledger"), "it is stale");
}

#[test]
fn a_stale_state_is_rolled_forward() {
    let fleet = Fleet::new();
    fleet.publish(LARGE, 0, 8);
    let fresh = fleet.ttfts_ms()[LARGE];
    fleet.clock.advance_ms(400);
    let later = fleet.ttfts_ms()[LARGE];
    assert!((fresh - later - 400.0).abs() < 25.0, "{fresh} then {later}: 400 ms of the queue are done");
}

#[test]
fn the_trade_off_moves_the_choice() {
    let fleet = Fleet::new();
    let chosen = |lambda_per_usd| {
        let mut described = fleet.query(None);
        described.query.tradeoff = Tradeoff { lambda_per_usd, delta_per_s: 0.0 };
        fleet.route(&described).instance
    };
    // Costs: 78.6, 129.4 and 415 millionths. At 500: 0.314, 0.723, 0.688; at 0 the accuracy; at 1e5 the cost.
    assert_eq!((chosen(0.0), chosen(500.0), chosen(1e5)), (2, 1, 0));
}

#[derive(Default)]
struct Ends(Mutex<Vec<Outcome>>);

impl SettleSink for Ends {
    fn settled(&self, outcome: &Outcome) {
        self.0.lock().unwrap().push(outcome.clone());
    }
}

#[test]
fn many_at_once_leak_nothing() {
    let fleet = Fleet::new();
    let ends = Arc::new(Ends::default());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (fleet, ends) = (&fleet, Arc::clone(&ends));
            scope.spawn(move || {
                let mut held = Vec::new();
                for n in 0..60u32 {
                    let described = fleet.query(Some(150));
                    let mut routed = fleet.route_into(&described, ends.clone());
                    if n % 3 == 0 {
                        routed.reservation.first_token();
                    }
                    if n % 5 == worker {
                        fleet.publish(routed.instance, n % 7, n % 3);
                    }
                    held.push(routed.reservation);
                    if held.len() > 8 {
                        held.swap_remove(n as usize % 8).finish(Ending::Complete);
                    }
                }
            });
        }
    });
    assert_eq!([0, 1, 2].map(|i| fleet.router.pool().load(i)), [Load::default(); 3]);
    assert_eq!(ends.0.lock().unwrap().len(), 240);
}
