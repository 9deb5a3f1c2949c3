//! Policies on hand-made candidates.

mod baselines;
mod cached;
mod constrained;
mod lagrangian;
mod lmdeploy;
mod pairs;
mod properties;
mod route_balance;
mod score;
mod vllm_sr;

use std::{cell::RefCell, collections::BTreeSet, sync::Arc, time::Duration};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::domain::{
    Basis, BasisSource, Bounds, CountSource, Dispatched, Ending, Endpoint, EstimateSource, InstanceId,
    InstanceSpec, Load, ModelIndex, Named, Needs, NoEstimate, Overhead, Price, PromptCount, Snapshot,
    Timestamp, Tradeoff, Ttft,
    snapshot::{EngineParams, Resident, SCHEMA, WaitingBeyond},
};

/// What a hand-made instance holds: remaining output tokens of each request, and free KV blocks of 100.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    pub(super) running: Vec<u32>,
    pub(super) waiting: Vec<u32>,
    /// Waiting requests that are not listed.
    pub(super) beyond: u32,
    /// Requests sent since the capture.
    pub(super) sent: Vec<u32>,
    pub(super) free_kv_blocks: u32,
    pub(super) max_num_seqs: u32,
    pub(super) from_ledger: bool,
}

/// Prompt tokens of every request a [`Holds`] has.
pub(super) const HELD_PROMPT_TOKENS: u32 = 32;

impl Holds {
    /// Runs and queues requests with these remaining tokens; half the KV cache is free.
    pub(super) fn new(running: &[u32], waiting: &[u32]) -> Self {
        let (running, waiting) = (running.to_vec(), waiting.to_vec());
        Self { running, waiting, free_kv_blocks: 50, max_num_seqs: 256, ..Self::default() }
    }

    fn basis(&self) -> Basis {
        let resident = |id: String| Resident { id, prompt_tokens: HELD_PROMPT_TOKENS, ..Resident::default() };
        let named = |prefix: &'static str, remaining: &[u32]| -> Vec<(String, u32)> {
            remaining.iter().enumerate().map(|(k, tokens)| (format!("{prefix}{k}"), *tokens)).collect()
        };
        let (running, waiting) = (named("r", &self.running), named("w", &self.waiting));
        let residents = |of: &[(String, u32)]| of.iter().map(|(id, _)| resident(id.clone())).collect();
        let sent = |(k, tokens): (usize, &u32)| Dispatched {
            id: format!("s{k}"),
            at_unix_us: Timestamp::from_unix_us(0),
            prompt_tokens: HELD_PROMPT_TOKENS,
            cached_tokens: 0,
            cached_blocks_in_use: 0,
            output_tokens: *tokens,
            priority: 0,
        };
        let snapshot = Snapshot {
            schema: SCHEMA.into(),
            instance: "i".into(),
            dp_rank: 0,
            nonce: String::new(),
            seq: 0,
            captured_unix_us: Timestamp::from_unix_us(0),
            engine: EngineParams {
                scheduler: "vllm-v1".into(),
                max_num_batched_tokens: 8192,
                max_num_seqs: self.max_num_seqs,
                block_size: 16,
                num_kv_blocks: 101,
                max_model_len: 4096,
                long_prefill_token_threshold: 0,
                watermark_blocks: 0,
                reserve_full_isl: true,
                enable_chunked_prefill: true,
                enable_prefix_caching: true,
                policy: crate::domain::snapshot::QueuePolicy::Fcfs,
                async_scheduling: true,
            },
            free_kv_blocks: self.free_kv_blocks,
            in_flight: None,
            running: residents(&running),
            waiting: residents(&waiting),
            waiting_beyond: WaitingBeyond {
                requests: self.beyond,
                prefill_tokens: u64::from(self.beyond * HELD_PROMPT_TOKENS),
            },
            scheduler_state: None,
        };
        Basis {
            source: if self.from_ledger { BasisSource::Ledger } else { BasisSource::Snapshot },
            snapshot: Arc::new(snapshot),
            predicted_remaining: Arc::new(running.into_iter().chain(waiting).collect()),
            dispatched: self.sent.iter().enumerate().map(sent).collect(),
        }
    }
}

/// One hand-made candidate.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    pub(super) model: usize,
    pub(super) price_usd: f64,
    pub(super) accuracy: Option<f64>,
    pub(super) cost_usd: Option<f64>,
    pub(super) utility: Option<f64>,
    /// Seconds; absent: never schedulable.
    pub(super) ttft_s: Option<f64>,
    /// Of an estimate to completion, seconds.
    pub(super) tpot_s: Option<f64>,
    pub(super) e2e_s: Option<f64>,
    pub(super) output_tokens: Option<f64>,
    pub(super) holds: Option<Holds>,
    /// Uncached prompt tokens of outstanding requests.
    pub(super) prefilling: u64,
    pub(super) residents: Option<u32>,
    pub(super) outstanding: u32,
    /// What the affinity pipeline thinks of it: the lowest comes first, equal ones tie.
    pub(super) affinity: u32,
}

impl Hand {
    pub(super) fn new(model: usize, utility: f64, ttft_s: f64) -> Self {
        Self {
            model,
            price_usd: 1.0,
            accuracy: Some(utility + 0.1),
            cost_usd: Some(0.1 / LAMBDA),
            utility: Some(utility),
            ttft_s: Some(ttft_s),
            tpot_s: None,
            e2e_s: None,
            output_tokens: Some(10.0),
            holds: None,
            prefilling: 0,
            residents: Some(0),
            outstanding: 0,
            affinity: 0,
        }
    }

    pub(super) fn unknown_accuracy(model: usize, cost_usd: Option<f64>, ttft_s: f64) -> Self {
        Self { accuracy: None, utility: None, cost_usd, ..Self::new(model, 0.0, ttft_s) }
    }
}

pub(super) const LAMBDA: f64 = 500.0;

pub(super) struct Hands {
    hands: Vec<Hand>,
    models: Vec<ModelId>,
    /// The pool position of the first candidate.
    pub(super) first_position: usize,
    views: Vec<InstanceView>,
    predictions: Vec<Prediction>,
    /// Every candidate an estimate was made for, once each.
    pub(super) asked: RefCell<BTreeSet<usize>>,
}

impl Hands {
    pub(super) fn new(hands: Vec<Hand>) -> Self {
        let view = |(i, hand): (usize, &Hand)| InstanceView {
            spec: Arc::new(InstanceSpec {
                id: InstanceId::from(format!("i{i}").as_str()),
                model: ModelIndex(hand.model),
                dp_rank: 0,
                price: Price { input_usd_per_mtok: hand.price_usd, ..Price::default() },
                batch_time: None,
                overhead: Overhead::default(),
                effective_prefill_tokens_per_s: None,
                peak_prefill_tokens_per_s: None,
            }),
            basis: hand.holds.as_ref().map(Holds::basis),
            resident_requests: hand.residents,
            load: Load { requests: hand.outstanding, uncached_prefill_tokens: hand.prefilling },
            usable: Ok(()),
        };
        let prediction = |hand: &Hand| Prediction {
            accuracy: hand.accuracy,
            output_tokens: hand.output_tokens,
            cost_usd: hand.cost_usd,
            utility: hand.utility,
        };
        let model = |hand: &Hand| ModelId::from(format!("m{}", hand.model).as_str());
        Self {
            models: hands.iter().map(model).collect(),
            first_position: 0,
            views: hands.iter().enumerate().map(view).collect(),
            predictions: hands.iter().map(prediction).collect(),
            asked: RefCell::default(),
            hands,
        }
    }
}

impl Candidates for Hands {
    fn len(&self) -> usize {
        self.hands.len()
    }

    fn position(&self, i: usize) -> usize {
        self.first_position + i
    }

    fn model_id(&self, i: usize) -> Option<&ModelId> {
        Some(&self.models[i])
    }

    fn view(&self, i: usize) -> &InstanceView {
        &self.views[i]
    }

    fn prediction(&self, i: usize) -> &Prediction {
        &self.predictions[i]
    }

    fn estimate(&self, i: usize, horizon: Horizon) -> Estimate {
        self.asked.borrow_mut().insert(i);
        let completes = horizon == Horizon::Completion;
        Estimate {
            ttft: match self.hands[i].ttft_s {
                Some(s) => Ok(Ttft { wait_s: 0.0, prefill_s: s }),
                None => Err(NoEstimate::Unschedulable),
            },
            e2e_s: self.hands[i].e2e_s.filter(|_| completes),
            tpot_s: self.hands[i].tpot_s.filter(|_| completes),
            spread_s: None,
            source: EstimateSource::Bea,
            age_s: None,
        }
    }

    fn rank(&self, set: &[usize], _rng: &mut dyn RngCore) -> Vec<Ranked> {
        let mut order = set.to_vec();
        order.sort_by_key(|&i| self.hands[i].affinity);
        let tier = |i: usize| self.hands[i].affinity as usize;
        order.into_iter().map(|i| Ranked { position: i, tier: tier(i), weight: 1.0 }).collect()
    }
}

/// A query with a TTFT target in seconds, and δ.
pub(super) fn query(target_s: Option<f64>, delta_per_s: f64) -> Query {
    Query {
        id: String::from("q"),
        arrived: Timestamp::from_unix_us(0),
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
        ttft_target: target_s.map(Duration::from_secs_f64),
        tpot_target: None,
        bounds: Bounds::default(),
        tradeoff: Tradeoff { lambda_per_usd: LAMBDA, delta_per_s },
        prompts: Vec::new(),
        prefix: [].into(),
    }
}

/// A query of so many prompt tokens under each of four models, with its full blocks hashed.
pub(super) fn sized(prompt_tokens: u32, prefix: &[u64]) -> Query {
    let prompts = vec![PromptCount::one(prompt_tokens, CountSource::Tokenizer); 4];
    Query { prompts, prefix: prefix.into(), ..query(None, 0.0) }
}

/// Options from JSON, through the registry.
pub(super) fn build(name: &str, options: serde_json::Value) -> Result<Box<dyn RoutingPolicy>, PolicyError> {
    let serde_json::Value::Object(options) = options else { panic!("options are an object") };
    PolicyConfig { name: name.into(), options }.build()
}

/// A complete answer of an instance.
pub(super) fn outcome(instance: usize, ttft_s: f64, e2e_s: f64, output_tokens: u32) -> Outcome {
    Outcome {
        attempt_id: String::from("a"),
        instance,
        ending: Ending::Complete,
        ttft_s: Some(ttft_s),
        e2e_s,
        prompt_tokens: None,
        cached_tokens: None,
        output_tokens: Some(output_tokens),
        cost_usd: None,
    }
}

pub(super) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

pub(super) fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

#[test]
fn the_registry_is_sorted_and_builds_every_policy_under_its_own_name() {
    let names: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    for name in names {
        let config = PolicyConfig { name: name.to_owned(), ..PolicyConfig::default() };
        assert_eq!(config.build().unwrap().name(), name);
    }
}

#[test]
fn an_unknown_policy_is_an_error_that_names_the_nearest() {
    let config = PolicyConfig { name: String::from("bear-lagrange"), ..PolicyConfig::default() };
    let error = config.build().err().unwrap().to_string();
    assert!(error.contains("`bear-lagrange`") && error.contains("`bear-lagrangian`"), "{error}");
    let config = PolicyConfig { name: String::from("shortest_que"), ..PolicyConfig::default() };
    assert!(config.build().err().unwrap().to_string().contains("`shortest-queue`"));
    let config = PolicyConfig { name: String::from("least-of-all"), ..PolicyConfig::default() };
    let error = config.build().err().unwrap().to_string();
    assert!(POLICIES.iter().all(|entry| error.contains(entry.name)), "{error}");
}

#[test]
fn an_unknown_option_is_an_error_for_every_policy() {
    for entry in POLICIES {
        let mut config = PolicyConfig { name: entry.name.to_owned(), ..PolicyConfig::default() };
        config.options.insert(String::from("detla"), serde_json::Value::from(1));
        let error = config.build().err().unwrap().to_string();
        assert!(error.contains(entry.name) && error.contains("detla"), "{error}");
    }
}

#[test]
fn no_candidates_is_no_choice() {
    let none = Hands::new(Vec::new());
    for entry in POLICIES {
        let config = PolicyConfig { name: entry.name.to_owned(), ..PolicyConfig::default() };
        let choice = config.build().unwrap().choose(&query(Some(1.0), 1.0), &none, &mut rng());
        assert_eq!(choice, None, "{}", entry.name);
    }
    assert_eq!(pinned(&query(None, 0.0), &none, &mut rng()), None);
}
