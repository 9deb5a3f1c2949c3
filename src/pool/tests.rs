//! The pool under a virtual clock.

mod answers;
mod health;
mod merging;
mod rebuilding;
mod sequences;
mod settling;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::*;
use crate::domain::{
    BatchTimeCoefficients, Capabilities, InstanceSpec, ModelId, ModelIndex, ModelSpec, Now, Overhead, Price,
    QueryLoad, Snapshot,
    snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
};

/// Where the tests' time starts.
pub(super) const START_US: u64 = 1_764_460_800_000_000;

/// The ingress of the tests' instances, microseconds.
pub(super) const INGRESS_US: u64 = 4000;

#[derive(Debug)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms * 1000, Ordering::Relaxed);
    }
}

impl Now for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_us(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
pub(super) struct Ends(pub(super) Mutex<Vec<Outcome>>);

impl SettleSink for Ends {
    fn settled(&self, outcome: &Outcome) {
        self.0.lock().unwrap().push(outcome.clone());
    }
}

/// A pool with its clock and the ends it reported.
pub(super) struct Bench {
    pub(super) pool: Arc<Pool>,
    pub(super) clock: Arc<Clock>,
    pub(super) ends: Arc<Ends>,
}

impl Bench {
    pub(super) fn new(instances: usize) -> Self {
        let config = PoolConfig::default();
        let specs = (0..instances).map(|i| spec(&format!("i{i}"))).collect();
        Self {
            pool: Arc::new(Pool::new(vec![model()], specs, config).unwrap()),
            clock: Arc::new(Clock(AtomicU64::new(START_US))),
            ends: Arc::default(),
        }
    }

    pub(super) fn reserve(&self, instance: usize, id: &str, load: QueryLoad) -> Reservation {
        self.reserve_with(ReserveRequest { load, ..request(instance, id) })
    }

    pub(super) fn reserve_with(&self, request: ReserveRequest) -> Reservation {
        self.pool.reserve(
            ReserveRequest { arrived: self.clock.now(), ..request },
            Arc::clone(&self.clock) as Arc<dyn Now>,
            Arc::clone(&self.ends) as Arc<dyn SettleSink>,
        )
    }

    /// Publishes a snapshot captured now.
    pub(super) fn publish(&self, seq: u64, running: &[Resident], waiting: &[Resident]) {
        self.pool.publish(0, self.snapshot(seq, running, waiting), self.clock.now()).unwrap();
    }

    pub(super) fn snapshot(&self, seq: u64, running: &[Resident], waiting: &[Resident]) -> Snapshot {
        Snapshot {
            schema: SCHEMA.to_owned(),
            instance: String::from("i0"),
            dp_rank: 0,
            nonce: String::from("life"),
            seq,
            captured_unix_us: self.clock.now(),
            engine: engine(),
            free_kv_blocks: 20_000,
            in_flight: None,
            running: running.to_vec(),
            waiting: waiting.to_vec(),
            waiting_beyond: WaitingBeyond::default(),
            scheduler_state: None,
        }
    }

    pub(super) fn basis(&self) -> crate::domain::Basis {
        self.pool.view(0, self.clock.now()).basis.unwrap()
    }

    /// Returns the ids on their way.
    pub(super) fn on_their_way(&self) -> Vec<String> {
        self.basis().dispatched.iter().map(|d| d.id.clone()).collect()
    }
}

pub(super) fn model() -> ModelSpec {
    ModelSpec {
        id: ModelId::from("m"),
        parameters_b: 8.2,
        max_model_len_tokens: 40_960,
        price: Price::default(),
        capabilities: Capabilities::default(),
        prior_accuracy: None,
        prior_output_tokens: Some(100.0),
    }
}

pub(super) fn spec(id: &str) -> InstanceSpec {
    InstanceSpec {
        id: InstanceId::from(id),
        model: ModelIndex(0),
        dp_rank: 0,
        price: Price {
            input_usd_per_mtok: 1.0,
            output_usd_per_mtok: 10.0,
            cached_input_usd_per_mtok: Some(0.1),
        },
        batch_time: Some(BatchTimeCoefficients {
            b0_s: 6.76e-3,
            b1_s: 2.0e-5,
            b2_s: 4.53e-8,
            b3_s: 2.19e-9,
            b4_s: 0.0,
        }),
        overhead: Overhead { ingress_s: INGRESS_US as f64 / 1e6, egress_s: 0.002 },
        effective_prefill_tokens_per_s: None,
        peak_prefill_tokens_per_s: None,
    }
}

pub(super) fn engine() -> EngineParams {
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

pub(super) fn load(prompt_tokens: u32, output_tokens: u32) -> QueryLoad {
    QueryLoad { prompt_tokens, cached_tokens: 0, cached_blocks_in_use: 0, output_tokens, priority: 0 }
}

pub(super) fn request(instance: usize, id: &str) -> ReserveRequest {
    ReserveRequest {
        instance,
        attempt_id: id.to_owned(),
        arrived: Timestamp::from_unix_us(START_US),
        load: load(100, 50),
        max_output_tokens: None,
        streamed: true,
        choices: 1,
        typical: true,
    }
}

pub(super) fn decoding(id: &str, prompt_tokens: u32, output_tokens: u32) -> Resident {
    let computed_tokens = prompt_tokens + output_tokens - 1;
    Resident {
        id: id.to_owned(),
        prompt_tokens,
        computed_tokens,
        output_tokens,
        kv_blocks: computed_tokens.div_ceil(16),
        ..Resident::default()
    }
}

pub(super) fn waiting(id: &str, prompt_tokens: u32) -> Resident {
    Resident { id: id.to_owned(), prompt_tokens, ..Resident::default() }
}

#[test]
fn a_pool_refuses_double_names_and_unknown_models() {
    let double = Pool::new(vec![model()], vec![spec("a"), spec("a")], PoolConfig::default());
    assert!(double.unwrap_err().to_string().contains("instance `a` is listed twice"));
    let double = Pool::new(vec![model(), model()], vec![spec("a")], PoolConfig::default());
    assert!(double.unwrap_err().to_string().contains("model `m` is listed twice"));
    let unknown = Pool::new(Vec::new(), vec![spec("a")], PoolConfig::default()).unwrap_err();
    assert!(matches!(unknown, PoolError::UnknownModel { models: 0, .. }), "{unknown}");
}

#[test]
fn an_option_of_zero_that_must_be_positive_is_named() {
    let config = PoolConfig { assumed_max_num_seqs: 0, ..PoolConfig::default() };
    let error = Pool::new(vec![model()], vec![spec("a")], config).unwrap_err().to_string();
    assert!(error.contains("pool.assumed_max_num_seqs"), "{error}");
}

#[test]
fn names_find_positions() {
    let bench = Bench::new(2);
    assert_eq!((bench.pool.position("i1"), bench.pool.position("i2")), (Some(1), None));
    assert_eq!((bench.pool.model_index("m"), bench.pool.model_index("x")), (Some(ModelIndex(0)), None));
}
