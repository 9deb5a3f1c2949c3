//! What the log does not hold, filled in: several worlds that agree with every row and contradict each other.
//!
//! A row says nothing of queues, caches, throughputs, prices, prefixes, or of what a policy had learned. Each
//! world makes up all of it, one in favour of the first instance, one of the last; each runs its own copy of the
//! policy. Only a choice that all worlds share is the log's answer.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{LoggedRow, roster::Seat};
use crate::{
    domain::{
        Basis, BasisSource, BatchTimeCoefficients, Ending, InstanceSpec, InstanceView, Load, Outcome,
        Overhead, Placement, Price, Query, Snapshot, Timestamp, Ttft,
        snapshot::{EngineParams, QueuePolicy, Resident, SCHEMA, WaitingBeyond},
    },
    policy::{PolicyConfig, PolicyError, RoutingPolicy},
};

/// A TTFT that is late by any target and still comes, seconds: an eligible instance serves in the end.
const LATEST_S: f64 = 1e6;
/// Requests by which neighbours in a rising or falling order differ.
const STEP_REQUESTS: u32 = 16;
/// Instances that a falling order can tell apart.
const MOST_SEATS: u32 = 65_536;
/// Prompt tokens of a made-up request.
const REQUEST_TOKENS: u32 = 512;
/// KV blocks of a made-up engine: more than any made-up load fills.
const KV_BLOCKS: u32 = 1 << 31;

/// How a made-up quantity runs over the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Unknown where it may be, else alike.
    Alike,
    /// The first instance has the least.
    Rising,
    /// The last instance has the least.
    Falling,
}

/// What one world makes up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hypothesis {
    /// Load, inverse throughput, price and observed latency.
    pub(super) state: Order,
    /// Whether engines publish snapshots.
    snapshots: bool,
    /// Estimates that were never made.
    pub(super) unlogged: Unlogged,
    /// Whether an unlogged ranking of replicas runs backwards.
    pub(super) reversed: bool,
    prefix: Prefix,
}

/// The TTFT of an estimate that was never made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unlogged {
    /// Every one is 0 s.
    Soonest,
    /// Every one is [`LATEST_S`].
    Latest,
    /// 0 s for the first candidate, late for the others, later for each.
    Rising,
    /// 0 s for the last candidate, late for the others, later for each towards the first.
    Falling,
}

#[derive(Clone, Copy, Debug)]
enum Prefix {
    Unhashed,
    OneForAll,
    EachItsOwn,
}

/// The worlds: both ends of every order, and estimates that are all good, all bad, or good for one end only.
pub(super) const HYPOTHESES: [Hypothesis; 4] = [
    Hypothesis {
        state: Order::Alike,
        snapshots: false,
        unlogged: Unlogged::Soonest,
        reversed: false,
        prefix: Prefix::Unhashed,
    },
    Hypothesis {
        state: Order::Rising,
        snapshots: false,
        unlogged: Unlogged::Latest,
        reversed: true,
        prefix: Prefix::OneForAll,
    },
    Hypothesis {
        state: Order::Falling,
        snapshots: true,
        unlogged: Unlogged::Rising,
        reversed: false,
        prefix: Prefix::EachItsOwn,
    },
    Hypothesis {
        state: Order::Rising,
        snapshots: true,
        unlogged: Unlogged::Falling,
        reversed: true,
        prefix: Prefix::OneForAll,
    },
];

impl Hypothesis {
    /// Returns the TTFT of candidate `i` of `n` whose estimate was never made.
    pub(super) fn ttft(&self, i: usize, n: usize) -> Ttft {
        let behind = |places: usize| if places == 0 { 0.0 } else { LATEST_S * places as f64 };
        let prefill_s = match self.unlogged {
            Unlogged::Soonest => 0.0,
            Unlogged::Latest => LATEST_S,
            Unlogged::Rising => behind(i),
            Unlogged::Falling => behind(n.saturating_sub(1 + i)),
        };
        Ttft { wait_s: 0.0, prefill_s }
    }

    /// Returns the block hashes of the `number`-th query.
    pub(super) fn prefix(&self, number: u64, prompt_tokens: u32) -> Arc<[u64]> {
        let blocks = u64::from((prompt_tokens / crate::domain::PREFIX_BLOCK_TOKENS).clamp(1, 64));
        match self.prefix {
            Prefix::Unhashed => Arc::new([]),
            Prefix::OneForAll => (1..=blocks).collect(),
            Prefix::EachItsOwn => (1..=blocks).map(|block| (number + 1) << 8 | block).collect(),
        }
    }
}

/// One world: its views of the instances and its own copy of each policy.
pub(super) struct World {
    pub(super) hypothesis: &'static Hypothesis,
    pub(super) views: Vec<InstanceView>,
    policies: HashMap<String, Box<dyn RoutingPolicy>>,
}

impl World {
    /// Makes an empty world.
    pub(super) fn new(hypothesis: &'static Hypothesis) -> Self {
        Self { hypothesis, views: Vec::new(), policies: HashMap::new() }
    }

    /// Makes up views for the seats it has none of yet.
    pub(super) fn seat(&mut self, seats: &[Seat], prices: &BTreeMap<String, Price>) {
        for (i, seat) in seats.iter().enumerate().skip(self.views.len()) {
            self.views.push(view(self.hypothesis, i, seat, prices.get(&seat.model_name)));
        }
    }

    /// Returns a policy that it has heard of.
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

    /// Tells a policy of its choice, and of an end that this world makes up.
    pub(super) fn carry_out(&self, policy: &dyn RoutingPolicy, query: &Query, seat: usize, row: &LoggedRow) {
        policy.dispatched(query, &Placement::single(seat, query.adapter.clone()));
        let ttft_s = match self.hypothesis.state {
            Order::Alike => return,
            Order::Rising => 0.01 * (seat + 1) as f64,
            Order::Falling => 100.0 / (seat + 1) as f64,
        };
        policy.observe(&Outcome {
            instance: seat,
            ending: Ending::Complete,
            ttft_s: Some(ttft_s),
            e2e_s: 10.0 * ttft_s,
            ..row.outcome.clone()
        });
    }
}

fn view(hypothesis: &Hypothesis, i: usize, seat: &Seat, price: Option<&Price>) -> InstanceView {
    let place = u32::try_from(i).unwrap_or(MOST_SEATS).min(MOST_SEATS);
    let (busy, slow) = match hypothesis.state {
        Order::Alike => (None, 1.0),
        Order::Rising => (Some(STEP_REQUESTS * place), f64::from(place + 1)),
        Order::Falling => (Some(STEP_REQUESTS * (MOST_SEATS - place)), f64::from(MOST_SEATS - place + 1)),
    };
    let requests = busy.unwrap_or(0);
    let known = busy.is_some();
    let prefill_tokens = u64::from(requests) * u64::from(REQUEST_TOKENS);
    InstanceView {
        spec: Arc::new(InstanceSpec {
            id: seat.id.clone(),
            model: seat.model,
            dp_rank: 0,
            price: price.copied().unwrap_or_else(|| made_up_price(hypothesis.state, seat)),
            batch_time: known.then_some(BatchTimeCoefficients {
                b0_s: 1e-3 * slow,
                b1_s: 1e-6 * slow,
                b2_s: 1e-9 * slow,
                b3_s: 1e-10 * slow,
                b4_s: 0.0,
            }),
            overhead: Overhead::default(),
            effective_prefill_tokens_per_s: known.then_some(1e6 / slow),
            peak_prefill_tokens_per_s: known.then_some(2e6 / slow),
        }),
        basis: hypothesis.snapshots.then(|| basis(seat, requests)),
        resident_requests: busy,
        load: Load { requests, uncached_prefill_tokens: prefill_tokens },
        usable: Ok(()),
    }
}

/// Prices that keep what the log shows (who shares one) and order the models one way or the other.
fn made_up_price(order: Order, seat: &Seat) -> Price {
    let model = (seat.model.0 + 1) as f64;
    let of_model = match order {
        Order::Alike => 1.0,
        Order::Rising => model,
        Order::Falling => 1.0 / model,
    };
    let usd = of_model * (1.0 + 1e-3 * seat.price_class as f64);
    Price { input_usd_per_mtok: usd, output_usd_per_mtok: usd, cached_input_usd_per_mtok: None }
}

/// One running request that grows with the load, the rest waiting.
fn basis(seat: &Seat, requests: u32) -> Basis {
    let tokens = requests.saturating_mul(REQUEST_TOKENS);
    let running = Resident {
        id: String::from("made-up"),
        prompt_tokens: tokens.max(1),
        computed_tokens: tokens.max(1),
        output_tokens: 1,
        kv_blocks: tokens / 16 + 1,
        ..Resident::default()
    };
    let snapshot = Snapshot {
        schema: SCHEMA.to_owned(),
        instance: seat.id.to_string(),
        dp_rank: 0,
        nonce: String::new(),
        seq: 1,
        captured_unix_us: Timestamp::from_unix_us(0),
        engine: EngineParams {
            scheduler: String::from("vllm-v1"),
            max_num_batched_tokens: 8192,
            max_num_seqs: 256,
            block_size: 16,
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
        free_kv_blocks: KV_BLOCKS - running.kv_blocks.min(KV_BLOCKS),
        in_flight: None,
        running: vec![running],
        waiting: Vec::new(),
        waiting_beyond: WaitingBeyond {
            requests,
            prefill_tokens: u64::from(requests) * u64::from(REQUEST_TOKENS),
        },
        scheduler_state: None,
    };
    let remaining = HashMap::from([(String::from("made-up"), requests.max(1))]);
    Basis {
        source: BasisSource::Snapshot,
        snapshot: Arc::new(snapshot),
        predicted_remaining: Arc::new(remaining),
        dispatched: Arc::new([]),
    }
}
