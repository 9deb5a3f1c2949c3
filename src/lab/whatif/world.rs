//! What the log does not hold, filled in: several worlds that agree with every row and contradict each other.
//!
//! A row says nothing of queues, caches, throughputs, prices, prefixes, or of what a policy had learned. Each
//! world makes up all of it: all alike, one end of the table favoured, the other end, and at last everything
//! against what the first world chose. Each runs its own copy of the policy. Only a choice that all worlds share
//! is the log's answer.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{LoggedRow, candidates::Kept, roster::Seat};
use crate::{
    domain::{
        Basis, BasisSource, BatchTimeCoefficients, Ending, InstanceSpec, InstanceView, Load, Outcome,
        Overhead, PREFIX_BLOCK_TOKENS, Placement, Price, Query, Snapshot, Timestamp, Ttft,
        snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
    },
    policy::{PolicyConfig, PolicyError, RoutingPolicy},
};

/// A TTFT that is late by any target and still comes, seconds: an eligible instance serves in the end.
pub(super) const LATEST_S: f64 = 1e6;
/// Requests on a full instance, more than any engine runs at once.
const FULL_REQUESTS: u32 = 4096;
/// Prompt tokens of a made-up request.
const REQUEST_TOKENS: u32 = 512;
/// KV blocks of a made-up engine: what its full instance holds.
const KV_BLOCKS: u32 = FULL_REQUESTS * REQUEST_TOKENS / BLOCK_TOKENS + 2;
const BLOCK_TOKENS: u32 = 16;
/// How much slower or dearer the made-up slow and dear are.
const FACTOR: f64 = 1e3;

/// Whom a world favours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Favour {
    /// Nobody: what may be unknown is.
    Nobody,
    /// The first candidate.
    First,
    /// The last candidate.
    Last,
    /// Everybody but the choice of the first world.
    Others,
}

/// The TTFT of an estimate that was never made.
#[derive(Clone, Copy, Debug)]
enum Unlogged {
    Soonest,
    Latest,
    /// 0 s for whom the world favours, late for the others.
    Favoured,
}

#[derive(Clone, Copy, Debug)]
enum Prefix {
    Unhashed,
    OneForAll,
    EachItsOwn,
}

/// What one world makes up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hypothesis {
    /// Whom loads, throughputs, prices and learned latencies favour.
    pub(super) favour: Favour,
    /// Whether engines publish snapshots.
    snapshots: bool,
    unlogged: Unlogged,
    prefix: Prefix,
}

/// The worlds; the first chooses first.
pub(super) const HYPOTHESES: [Hypothesis; 5] = [
    Hypothesis {
        favour: Favour::Nobody,
        snapshots: false,
        unlogged: Unlogged::Soonest,
        prefix: Prefix::Unhashed,
    },
    Hypothesis {
        favour: Favour::First,
        snapshots: false,
        unlogged: Unlogged::Latest,
        prefix: Prefix::OneForAll,
    },
    Hypothesis {
        favour: Favour::First,
        snapshots: true,
        unlogged: Unlogged::Favoured,
        prefix: Prefix::EachItsOwn,
    },
    Hypothesis {
        favour: Favour::Last,
        snapshots: true,
        unlogged: Unlogged::Favoured,
        prefix: Prefix::OneForAll,
    },
    Hypothesis {
        favour: Favour::Others,
        snapshots: true,
        unlogged: Unlogged::Favoured,
        prefix: Prefix::EachItsOwn,
    },
];

impl Hypothesis {
    /// Returns how far candidate `i` of `n` stands from the world's favour, 0 in it; `against` is the choice of
    /// the first world.
    pub(super) fn behind(&self, i: usize, n: usize, against: usize) -> usize {
        match self.favour {
            Favour::Nobody => 0,
            Favour::First => i,
            Favour::Last => n.saturating_sub(1 + i),
            Favour::Others => usize::from(i == against),
        }
    }

    /// Returns the TTFT of a candidate whose estimate was never made, by how far it is behind.
    pub(super) fn ttft(&self, behind: usize) -> Ttft {
        let late = match self.unlogged {
            Unlogged::Soonest => false,
            Unlogged::Latest => true,
            Unlogged::Favoured => behind > 0,
        };
        Ttft { wait_s: 0.0, prefill_s: if late { LATEST_S + behind as f64 } else { 0.0 } }
    }

    /// Returns the block hashes of the `number`-th query.
    pub(super) fn prefix(&self, number: u64, prompt_tokens: u32) -> Arc<[u64]> {
        let blocks = u64::from((prompt_tokens / PREFIX_BLOCK_TOKENS).clamp(1, 64));
        match self.prefix {
            Prefix::Unhashed => Arc::new([]),
            Prefix::OneForAll => (1..=blocks).collect(),
            Prefix::EachItsOwn => (1..=blocks).map(|block| (number + 1) << 8 | block).collect(),
        }
    }
}

/// One instance as the worlds may configure it.
pub(super) struct Specs {
    /// Uncalibrated.
    unknown: Arc<InstanceSpec>,
    /// Calibrated: fast, slow; each cheap, dear.
    calibrated: [[Arc<InstanceSpec>; 2]; 2],
}

impl Specs {
    fn new(seat: &Seat, price: Option<&Price>) -> Self {
        let spec = |slow: Option<f64>, dear: f64| {
            Arc::new(InstanceSpec {
                id: seat.id.clone(),
                model: seat.model,
                dp_rank: 0,
                price: price.copied().unwrap_or_else(|| made_up_price(dear, seat)),
                batch_time: slow.map(|slow| BatchTimeCoefficients {
                    b0_s: 1e-3 * slow,
                    b1_s: 1e-6 * slow,
                    b2_s: 1e-9 * slow,
                    b3_s: 1e-10 * slow,
                    b4_s: 0.0,
                }),
                overhead: Overhead::default(),
                effective_prefill_tokens_per_s: slow.map(|slow| 1e6 / slow),
                peak_prefill_tokens_per_s: slow.map(|slow| 2e6 / slow),
            })
        };
        let both = [1.0, FACTOR];
        Self {
            unknown: spec(None, 1.0),
            calibrated: both.map(|slow| both.map(|dear| spec(Some(slow), dear))),
        }
    }
}

/// What all worlds share: specs by seat, and an idle and a full engine.
pub(super) struct Stage {
    specs: Vec<Specs>,
    bases: [Basis; 2],
}

impl Stage {
    pub(super) fn new() -> Self {
        Self { specs: Vec::new(), bases: [0, FULL_REQUESTS].map(basis) }
    }

    /// Makes specs for the seats it has none of yet.
    pub(super) fn seat(&mut self, seats: &[Seat], prices: &BTreeMap<String, Price>) {
        for seat in &seats[self.specs.len()..] {
            self.specs.push(Specs::new(seat, prices.get(&seat.model_name)));
        }
    }

    /// Returns what a world knows of each candidate.
    pub(super) fn views(
        &self,
        hypothesis: &Hypothesis,
        kept: &[Kept],
        seats: &[Seat],
        against: usize,
    ) -> Vec<InstanceView> {
        let n = kept.len();
        let model = |i: usize| seats[kept[i].seat].model;
        let behind = |i: usize| hypothesis.behind(i, n, against);
        let dear = |i: usize| match hypothesis.favour {
            Favour::Nobody => false,
            Favour::First => model(i) != model(0),
            Favour::Last => model(i) != model(n - 1),
            Favour::Others => model(i) == model(against),
        };
        let view = |i: usize| {
            let specs = &self.specs[kept[i].seat];
            let full = usize::from(behind(i) > 0);
            let known = hypothesis.favour != Favour::Nobody;
            let more = u32::try_from(behind(i)).unwrap_or(u32::MAX);
            let requests = if full > 0 { FULL_REQUESTS.saturating_add(more) } else { 0 };
            let spec = if known { &specs.calibrated[full][usize::from(dear(i))] } else { &specs.unknown };
            InstanceView {
                spec: Arc::clone(spec),
                basis: hypothesis.snapshots.then(|| self.bases[full].clone()),
                resident_requests: known.then_some(requests),
                load: Load {
                    requests,
                    uncached_prefill_tokens: u64::from(requests) * u64::from(REQUEST_TOKENS),
                },
                usable: Ok(()),
            }
        };
        (0..n).map(view).collect()
    }
}

/// One world: what it makes up and its own copy of each policy.
pub(super) struct World {
    pub(super) hypothesis: &'static Hypothesis,
    policies: HashMap<String, Box<dyn RoutingPolicy>>,
}

impl World {
    /// Makes a world without policies.
    pub(super) fn new(hypothesis: &'static Hypothesis) -> Self {
        Self { hypothesis, policies: HashMap::new() }
    }

    /// Returns a policy that it has a copy of.
    pub(super) fn policy(&self, name: &str) -> Option<&dyn RoutingPolicy> {
        self.policies.get(name).map(|policy| &**policy)
    }

    /// Makes its copy of a policy unless it has one.
    pub(super) fn enact(&mut self, config: &PolicyConfig) -> Result<(), PolicyError> {
        if !self.policies.contains_key(&config.name) {
            self.policies.insert(config.name.clone(), config.build()?);
        }
        Ok(())
    }

    /// Tells a policy of its choice, and of ends that this world makes up, soon for whom it favours. Where there are
    /// snapshots, every candidate has an end: so a policy that saw other traffic would have learned.
    pub(super) fn carry_out(
        &self,
        policy: &dyn RoutingPolicy,
        query: &Query,
        kept: &[Kept],
        (chosen, against): (usize, usize),
        row: &LoggedRow,
    ) {
        policy.dispatched(query, &Placement::single(kept[chosen].seat, query.adapter.clone()));
        if self.hypothesis.favour == Favour::Nobody {
            return;
        }
        for (i, place) in kept.iter().enumerate() {
            if i != chosen && !self.hypothesis.snapshots {
                continue;
            }
            let behind = self.hypothesis.behind(i, kept.len(), against);
            let ttft_s = if behind > 0 { 10.0 + behind as f64 } else { 0.01 };
            policy.observe(&Outcome {
                instance: place.seat,
                ending: Ending::Complete,
                ttft_s: Some(ttft_s),
                e2e_s: 10.0 * ttft_s,
                output_tokens: Some(row.outcome.output_tokens.unwrap_or(0).max(2)),
                ..row.outcome.clone()
            });
        }
    }
}

/// Prices that keep what the log shows: which replicas share one.
fn made_up_price(dear: f64, seat: &Seat) -> Price {
    let usd = dear * (1.0 + 1e-3 * seat.price_class as f64);
    Price { input_usd_per_mtok: usd, output_usd_per_mtok: usd, cached_input_usd_per_mtok: None }
}

/// An engine with so many requests: one runs and holds their KV blocks, as many wait.
fn basis(requests: u32) -> Basis {
    let tokens = requests * REQUEST_TOKENS;
    let running = Resident {
        id: String::from("made-up"),
        prompt_tokens: tokens.max(1),
        computed_tokens: tokens.max(1),
        output_tokens: 1,
        kv_blocks: tokens / BLOCK_TOKENS + 1,
        ..Resident::default()
    };
    let snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        instance: String::from("made-up"),
        dp_rank: 0,
        nonce: String::new(),
        seq: 1,
        captured_unix_us: Timestamp::from_unix_us(0),
        engine: EngineParams {
            scheduler: String::from("vllm-v1"),
            max_num_batched_tokens: 8192,
            max_num_seqs: 256,
            block_size: BLOCK_TOKENS,
            num_kv_blocks: KV_BLOCKS,
            max_model_len: u32::MAX,
            long_prefill_token_threshold: 0,
            watermark_blocks: 0,
            reserve_full_isl: true,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: QueuePolicy::Fcfs,
            async_scheduling: true,
        },
        free_kv_blocks: KV_BLOCKS - 1 - running.kv_blocks,
        in_flight: None,
        running: vec![running],
        waiting: Vec::new(),
        waiting_beyond: WaitingBeyond { requests, prefill_tokens: u64::from(tokens) },
        scheduler_state: None,
    };
    Basis {
        source: BasisSource::Snapshot,
        snapshot: Arc::new(snapshot),
        predicted_remaining: Arc::new(HashMap::from([(String::from("made-up"), tokens.max(1))])),
        dispatched: Arc::new([]),
    }
}
