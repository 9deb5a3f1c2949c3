//! What the pool hands to the estimator, judged by an engine in virtual time: from fresh and old
//! snapshots, and from the ledger alone, the estimate must be that of the engine's true present state.
//!
//! The engine runs on the estimator's own coefficients and every length is known, so that the
//! difference is the pool's. (What arrives later and delays a prefill is nobody's to know.)

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bear::{
    domain::{
        Basis, BasisSource, BatchTimeCoefficients, Capabilities, Dispatched, Ending, Horizon, InstanceId,
        InstanceSpec, InstanceView, ModelId, ModelIndex, ModelSpec, Now, Overhead, Price, QueryLoad,
        Snapshot, Timestamp,
        snapshot::{EngineParams, QueuePolicy},
    },
    engine::{BatchTime, Engine, Event, NewRequest, SnapshotMeta, seconds},
    latency::{Estimator, EstimatorSetup, estimator},
    pool::{NoSink, Pool, PoolConfig, Reservation, ReserveRequest},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const START_US: u64 = 1_764_460_800_000_000;
const INGRESS_US: u64 = 4000;
const EGRESS_US: u64 = 2000;

/// Qwen3-8B on one H100.
const B: BatchTimeCoefficients =
    BatchTimeCoefficients { b0_s: 6.76e-3, b1_s: 2.0e-5, b2_s: 4.53e-8, b3_s: 2.19e-9, b4_s: 0.0 };

struct Clock(AtomicU64);

impl Now for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.0.load(Ordering::Relaxed))
    }
}

/// In order of time, then of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    BatchEnds,
    Joins(usize),
    Seen { request: usize, last: bool },
    Captured,
    Arrives(usize),
}

#[derive(Clone, Copy)]
struct Request {
    at_us: u64,
    prompt_tokens: u32,
    output_tokens: u32,
    streamed: bool,
}

struct Run {
    engine: Engine,
    pool: Arc<Pool>,
    clock: Arc<Clock>,
    estimator: Box<dyn Estimator>,
    queue: BinaryHeap<Reverse<(u64, Happening)>>,
    requests: Vec<Request>,
    held: BTreeMap<usize, Reservation>,
    predicted_s: Vec<f64>,
    /// The estimate on the engine's true present state.
    ideal_s: Vec<f64>,
    /// In transit to the engine.
    in_transit: BTreeMap<usize, u64>,
    /// Time between two captures; absent: never.
    period_us: Option<u64>,
}

impl Run {
    fn new(requests: Vec<Request>, period_us: Option<u64>) -> Self {
        let model = ModelSpec {
            id: ModelId::from("qwen3-8b"),
            parameters_b: 8.2,
            max_model_len_tokens: 40_960,
            price: Price::default(),
            capabilities: Capabilities::default(),
            prior_accuracy: None,
            prior_output_tokens: None,
        };
        let spec = InstanceSpec {
            id: InstanceId::from("qwen3-8b-0"),
            model: ModelIndex(0),
            dp_rank: 0,
            price: Price::default(),
            batch_time: Some(B),
            overhead: Overhead { ingress_s: INGRESS_US as f64 / 1e6, egress_s: EGRESS_US as f64 / 1e6 },
            effective_prefill_tokens_per_s: None,
            peak_prefill_tokens_per_s: None,
        };
        let mut queue: BinaryHeap<_> =
            requests.iter().enumerate().map(|(n, r)| Reverse((r.at_us, Happening::Arrives(n)))).collect();
        if period_us.is_some() {
            queue.push(Reverse((START_US, Happening::Captured)));
        }
        Self {
            engine: Engine::with_block_cache(params()).unwrap(),
            pool: Arc::new(Pool::new(vec![model], vec![spec], PoolConfig::default()).unwrap()),
            clock: Arc::new(Clock(AtomicU64::new(START_US))),
            estimator: (estimator("bea").unwrap().construct)(&EstimatorSetup::default()),
            queue,
            predicted_s: vec![f64::NAN; requests.len()],
            ideal_s: vec![f64::NAN; requests.len()],
            in_transit: BTreeMap::new(),
            requests,
            held: BTreeMap::new(),
            period_us,
        }
    }

    /// Runs to the end and returns the mean absolute difference to the ideal TTFT, relative to it.
    fn error(mut self) -> f64 {
        while let Some(Reverse((now_us, happening))) = self.queue.pop() {
            self.clock.0.store(now_us, Ordering::Relaxed);
            self.step(now_us, happening);
            self.begin(now_us);
        }
        assert!(self.held.is_empty());
        let pairs = self.predicted_s.iter().zip(&self.ideal_s);
        pairs.map(|(predicted, ideal)| (predicted - ideal).abs() / ideal).sum::<f64>()
            / self.requests.len() as f64
    }

    fn step(&mut self, now_us: u64, happening: Happening) {
        match happening {
            Happening::Arrives(n) => self.arrive(now_us, n),
            Happening::Joins(n) => {
                self.in_transit.remove(&n);
                let Request { prompt_tokens, output_tokens, .. } = self.requests[n];
                let new = NewRequest {
                    id: format!("r{n}"),
                    prompt_tokens,
                    output_tokens,
                    max_tokens: None,
                    priority: 0,
                    block_hashes: Arc::from([]),
                };
                self.engine.add(new).unwrap();
            }
            Happening::BatchEnds => {
                for event in self.engine.end() {
                    let (id, last) = match &event {
                        Event::Token { id, .. } => (id, false),
                        Event::Finished { id, .. } => (id, true),
                    };
                    let request = number(id);
                    self.queue.push(Reverse((now_us + EGRESS_US, Happening::Seen { request, last })));
                }
            }
            Happening::Seen { request, last } => {
                if last {
                    self.held.remove(&request).unwrap().finish(Ending::Complete);
                } else if self.requests[request].streamed {
                    let reservation = self.held.get_mut(&request).unwrap();
                    reservation.first_token();
                    reservation.tokens(1);
                }
            }
            Happening::Captured => self.capture(now_us),
        }
    }

    fn arrive(&mut self, now_us: u64, n: usize) {
        let Request { prompt_tokens, output_tokens, streamed, .. } = self.requests[n];
        let load = QueryLoad {
            prompt_tokens,
            cached_tokens: 0,
            cached_blocks_in_use: 0,
            output_tokens,
            priority: 0,
        };
        let now = self.clock.now();
        let view = self.pool.view(0, now);
        self.predicted_s[n] = self.estimator.estimate(load, &view, now, Horizon::FirstToken).ttft_s();
        let ideal = InstanceView { basis: Some(self.present()), ..view };
        self.ideal_s[n] = self.estimator.estimate(load, &ideal, now, Horizon::FirstToken).ttft_s();
        let request = ReserveRequest {
            instance: 0,
            attempt_id: format!("r{n}"),
            arrived: now,
            load,
            max_output_tokens: None,
            streamed,
            choices: 1,
            typical: true,
        };
        let clock = Arc::clone(&self.clock) as Arc<dyn Now>;
        self.held.insert(n, self.pool.reserve(request, clock, Arc::new(NoSink)));
        self.in_transit.insert(n, now_us + INGRESS_US);
        self.queue.push(Reverse((now_us + INGRESS_US, Happening::Joins(n))));
    }

    /// Returns the engine's state now with true lengths, and what is on its way to it.
    fn present(&self) -> Basis {
        let snapshot = self.snapshot();
        let residents = snapshot.running.iter().chain(&snapshot.waiting);
        let remaining = residents
            .map(|r| (r.id.clone(), self.requests[number(&r.id)].output_tokens - r.output_tokens))
            .collect();
        let dispatched = self.in_transit.iter().map(|(&n, &at_us)| Dispatched {
            id: format!("r{n}"),
            at_unix_us: Timestamp::from_unix_us(at_us),
            prompt_tokens: self.requests[n].prompt_tokens,
            cached_tokens: 0,
            cached_blocks_in_use: 0,
            output_tokens: self.requests[n].output_tokens,
            priority: 0,
        });
        Basis {
            source: BasisSource::Snapshot,
            dispatched: dispatched.collect(),
            snapshot: Arc::new(snapshot),
            predicted_remaining: Arc::new(remaining),
        }
    }

    fn snapshot(&self) -> Snapshot {
        self.engine.snapshot(SnapshotMeta {
            instance: String::from("e"),
            dp_rank: 0,
            nonce: String::from("n"),
            captured: self.clock.now(),
        })
    }

    fn capture(&mut self, now_us: u64) {
        self.pool.publish(0, self.snapshot(), self.clock.now()).unwrap();
        let more = self.queue.iter().any(|Reverse((_, h))| matches!(h, Happening::Arrives(_)));
        if let Some(period_us) = self.period_us.filter(|_| more) {
            self.queue.push(Reverse((now_us + period_us, Happening::Captured)));
        }
    }

    /// Begins a batch unless something else happens at this very time first.
    fn begin(&mut self, now_us: u64) {
        if self.queue.peek().is_some_and(|Reverse((at_us, _))| *at_us == now_us) {
            return;
        }
        if let Some(shape) = self.engine.begin(self.clock.now()) {
            let duration_us = (seconds(BatchTime::from(&B).duration(&shape.work)) * 1e6).round() as u64;
            self.queue.push(Reverse((now_us + duration_us, Happening::BatchEnds)));
        }
    }
}

fn number(id: &str) -> usize {
    id[1..].parse().unwrap()
}

fn params() -> EngineParams {
    EngineParams {
        scheduler: String::from("vllm-v1"),
        max_num_batched_tokens: 8192,
        max_num_seqs: 256,
        block_size: 16,
        num_kv_blocks: 23_550,
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

/// Poisson arrivals at 8 a second, prompts of 50 to 9000 tokens, answers of 20 to 400.
fn requests(streamed: bool) -> Vec<Request> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut at_us = START_US + 1000;
    (0..120)
        .map(|_| {
            at_us += (-(1.0 - rng.random::<f64>()).ln() * 125_000.0) as u64;
            let prompt_tokens = if rng.random_bool(0.2) { 9000 } else { rng.random_range(50..1500) };
            Request { at_us, prompt_tokens, output_tokens: rng.random_range(20..400), streamed }
        })
        .collect()
}

fn error(period_ms: Option<u64>, streamed: bool) -> f64 {
    Run::new(requests(streamed), period_ms.map(|ms| ms * 1000)).error()
}

#[test]
fn a_snapshot_of_this_moment_gives_the_ideal_estimate() {
    assert!(error(Some(1), true) < 1e-6);
}

#[test]
fn old_snapshots_rolled_forward_stay_near_it() {
    for (period_ms, streamed, most) in
        [(20, true, 0.005), (400, true, 0.01), (400, false, 0.04), (1900, true, 0.03), (1900, false, 0.06)]
    {
        let error = error(Some(period_ms), streamed);
        assert!(error < most, "captured every {period_ms} ms, streamed {streamed}: {error}");
    }
}

#[test]
fn the_ledger_alone_comes_near_it() {
    for (streamed, most) in [(true, 0.02), (false, 0.08)] {
        let error = error(None, streamed);
        assert!(error < most, "streamed {streamed}: {error}");
    }
}
