//! Policies on hand-made candidates.

mod baselines;
mod constrained;
mod lagrangian;

use std::{cell::RefCell, collections::BTreeSet, sync::Arc, time::Duration};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::domain::{
    Bounds, Endpoint, EstimateSource, InstanceId, InstanceSpec, Load, ModelIndex, Named, Needs, NoEstimate,
    Overhead, Price, Timestamp, Tradeoff, Ttft,
};

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
            basis: None,
            resident_requests: hand.residents,
            load: Load { requests: hand.outstanding, uncached_prefill_tokens: 0 },
            usable: Ok(()),
        };
        let prediction = |hand: &Hand| Prediction {
            accuracy: hand.accuracy,
            output_tokens: Some(10.0),
            cost_usd: hand.cost_usd,
            utility: hand.utility,
        };
        Self {
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
        i
    }

    fn view(&self, i: usize) -> &InstanceView {
        &self.views[i]
    }

    fn prediction(&self, i: usize) -> &Prediction {
        &self.predictions[i]
    }

    fn estimate(&self, i: usize, _horizon: Horizon) -> Estimate {
        self.asked.borrow_mut().insert(i);
        Estimate {
            ttft: match self.hands[i].ttft_s {
                Some(s) => Ok(Ttft { wait_s: 0.0, prefill_s: s }),
                None => Err(NoEstimate::Unschedulable),
            },
            e2e_s: None,
            tpot_s: None,
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
