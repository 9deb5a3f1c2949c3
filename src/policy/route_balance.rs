//! RouteBalance (Da and Kalyvianaki 2026): quality, cost, end-to-end latency and use in one weighted score.
//!
//! The rule of the published scheduler (AKafakA/route-balance at 671db9f), request by request: its batches
//! wait 50 to 200 ms for company, which alone would spend most TTFT targets. Quality is raw. The published
//! option to filter by a latency target is off there, and absent here.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rand::RngCore;
use serde::Deserialize;

use super::{
    Candidates, Choice, PolicyEntry, PolicyError, RoutingPolicy,
    registry::{not_negative, parse},
    state::{Totals, prompt_tokens, residents, tpot_s},
    weighted::{Relative, Score},
};
use crate::domain::{Horizon, Placement, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "route-balance",
    summary: "weighted quality, cost, end-to-end latency and utilisation (RouteBalance)",
    build: |options| Ok(Box::new(RouteBalance::new(parse(ENTRY.name, options)?)?)),
};

/// Keeps normalised signals finite where all are 0 (RouteBalance's own); cost counts in millionths of a USD.
const FLOOR: f64 = 1e-8;

/// Options of [`RouteBalance`]; the weights' defaults are those of its code.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Weight of predicted quality in `[0,1]`.
    pub(super) w_q: f64,
    /// Weight of low cost.
    pub(super) w_c: f64,
    /// Weight of low latency.
    pub(super) w_l: f64,
    /// Weight of low utilisation.
    pub(super) w_b: f64,
    /// Residents that make an instance full where its KV cache is unknown.
    pub(super) capacity_requests: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { w_q: 0.3, w_c: 0.2, w_l: 0.3, w_b: 0.2, capacity_requests: 8 }
    }
}

/// Takes the best score; ties by fewer residents, then the least recently assigned, then in order.
///
/// A candidate with an unknown signal comes after every one with fewer unknown.
#[derive(Debug)]
pub(super) struct RouteBalance {
    options: Options,
    assigned: Mutex<Assigned>,
}

/// When each instance was last assigned a request, in requests, by pool position.
#[derive(Debug, Default)]
struct Assigned {
    requests: u64,
    last: HashMap<usize, u64>,
}

impl RouteBalance {
    /// Makes it.
    ///
    /// # Errors
    /// [`PolicyError::OutOfRange`].
    pub(super) fn new(options: Options) -> Result<Self, PolicyError> {
        let Options { w_q, w_c, w_l, w_b, capacity_requests } = options;
        not_negative(ENTRY.name, &[("w_q", w_q), ("w_c", w_c), ("w_l", w_l), ("w_b", w_b)])?;
        if capacity_requests == 0 {
            return Err(PolicyError::OutOfRange {
                name: ENTRY.name,
                option: String::from("capacity_requests"),
                value: 0.0,
                allowed: "at least 1",
            });
        }
        Ok(Self { options, assigned: Mutex::default() })
    }

    /// Scores every candidate; signals of weight 0 are not looked up.
    fn scores(&self, query: &Query, candidates: &dyn Candidates) -> Vec<Score> {
        let of = |weight: f64, signal: &dyn Fn(usize) -> Option<f64>| {
            let values = (0..candidates.len()).map(|i| if weight > 0.0 { signal(i) } else { None });
            Relative::new(values.collect(), FLOOR)
        };
        let Options { w_q, w_c, w_l, w_b, .. } = self.options;
        let cost = of(w_c, &|i| candidates.prediction(i).cost_usd.map(|usd| usd * 1e6));
        let latency = of(w_l, &|i| latency_s(candidates, i));
        let utilisation = of(w_b, &|i| Some(self.utilisation(query, candidates, i)));
        let score = |i: usize| {
            Score::default()
                .add(w_q, candidates.prediction(i).accuracy)
                .add(w_c, cost.share(i).map(|share| 1.0 - share))
                .add(w_l, latency.share(i).map(|share| 1.0 - share))
                .add(w_b, utilisation.share(i).map(|share| 1.0 - share))
        };
        (0..candidates.len()).map(score).collect()
    }

    /// Returns the share of the KV cache held once the request is in; where that is unknown, residents over
    /// the configured capacity.
    fn utilisation(&self, query: &Query, candidates: &dyn Candidates, i: usize) -> f64 {
        let view = candidates.view(i);
        match (Totals::of(view).and_then(|totals| totals.kv), candidates.prediction(i).output_tokens) {
            (Some(kv), Some(output_tokens)) => {
                let tokens = f64::from(prompt_tokens(query, candidates, i)) + output_tokens;
                let blocks = f64::from(kv.held_blocks) + tokens / f64::from(kv.block_tokens);
                blocks / f64::from(kv.blocks)
            }
            _ => f64::from(residents(view)) / f64::from(self.options.capacity_requests),
        }
    }

    fn assigned(&self) -> MutexGuard<'_, Assigned> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the end-to-end latency by RouteBalance, seconds; absent where a part of it is unknown.
///
/// With a free place in the batch and an empty queue it is the answer's own decoding; otherwise a share of
/// the pending decode tokens, split among the running requests, goes before.
fn latency_s(candidates: &dyn Candidates, i: usize) -> Option<f64> {
    let own_tokens = candidates.prediction(i).output_tokens?.max(1.0);
    let totals = Totals::of(candidates.view(i))?;
    let tpot_s = tpot_s(&candidates.estimate(i, Horizon::Completion))?;
    let slot_open = totals.running < totals.max_running && totals.waiting == 0;
    let before = if slot_open { 0.0 } else { totals.remaining_tokens / f64::from(totals.running.max(1)) };
    Some((before + own_tokens) * tpot_s)
}

impl RoutingPolicy for RouteBalance {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let scores = self.scores(query, candidates);
        let assigned = self.assigned();
        let last = |i: usize| assigned.last.get(&candidates.position(i)).copied();
        let best = (0..candidates.len()).min_by(|&a, &b| {
            scores[a]
                .better(&scores[b])
                .then_with(|| residents(candidates.view(a)).cmp(&residents(candidates.view(b))))
                .then_with(|| last(a).cmp(&last(b)))
        })?;
        Some(Choice::single(best, Reason::Score))
    }

    fn dispatched(&self, _query: &Query, placement: &Placement) {
        let mut assigned = self.assigned();
        assigned.requests += 1;
        let request = assigned.requests;
        assigned.last.extend(placement.legs.iter().map(|leg| (leg.instance, request)));
    }

    /// The whole answer's latency, seconds.
    fn believed_latency_s(&self, _query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        latency_s(candidates, i)
    }
}
