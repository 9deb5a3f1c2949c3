//! The `latency_aware` selection of vLLM's semantic router: the model with the least percentiles of observed
//! TPOT and TTFT.
//!
//! The rule of vllm-project/semantic-router at 3d48f8c. It picks a model; what balances its replicas is left
//! to others there, and is the fewest residents here. Values are learnt when an answer ends.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, PolicyError, RoutingPolicy, registry::parse, state::residents};
use crate::domain::{Ending, ModelIndex, Outcome, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "vllm-sr",
    summary: "least percentiles of observed TPOT and TTFT, a model (vLLM semantic router)",
    build: |options| Ok(Box::new(VllmSr::new(parse(ENTRY.name, options)?)?)),
};

/// The values remembered of a model and metric (the semantic router's).
const REMEMBERED: usize = 1000;

/// The newest value's weight while there are only one or two (the semantic router's).
const NEWEST: f64 = 0.3;

/// Options of [`VllmSr`]; the defaults are those of the semantic router's example.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    /// Percentile of TPOT, 1 to 100; 0: TPOT does not count.
    pub(super) tpot_percentile: u8,
    /// Percentile of TTFT, 1 to 100; 0: TTFT does not count.
    pub(super) ttft_percentile: u8,
    /// Whether a model without observations is tried before the others. The semantic router passes it over,
    /// so that one which starts unobserved stays so.
    pub(super) try_unobserved: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { tpot_percentile: 90, ttft_percentile: 95, try_unobserved: false }
    }
}

/// Takes the model with the least mean of its percentiles, each over the least of any model; equal ones in
/// the pool's order. Where no model has all the metrics that count, the first model.
#[derive(Debug)]
pub(super) struct VllmSr {
    options: Options,
    memory: Mutex<Memory>,
}

/// Observations by pool position, each with its turn: a model's are those of its instances together.
#[derive(Debug, Default)]
struct Memory {
    turn: u64,
    instances: HashMap<usize, Observed>,
}

type Window = VecDeque<(u64, f64)>;

/// One instance's last values, seconds.
#[derive(Debug, Default)]
struct Observed {
    tpot_s: Window,
    ttft_s: Window,
}

/// One model among the candidates.
struct Model {
    replicas: Vec<usize>,
    /// The percentiles that count, TPOT first; absent: one of them has no value.
    metrics: Option<Vec<f64>>,
}

impl VllmSr {
    /// Makes it.
    ///
    /// # Errors
    /// [`PolicyError::OutOfRange`].
    pub(super) fn new(options: Options) -> Result<Self, PolicyError> {
        let given =
            [("tpot_percentile", options.tpot_percentile), ("ttft_percentile", options.ttft_percentile)];
        match given.into_iter().find(|(_, percentile)| *percentile > 100) {
            Some((option, value)) => Err(PolicyError::OutOfRange {
                name: ENTRY.name,
                option: option.to_owned(),
                value: f64::from(value),
                allowed: "0 to 100",
            }),
            None => Ok(Self { options, memory: Mutex::default() }),
        }
    }

    fn models(&self, candidates: &dyn Candidates) -> Vec<Model> {
        let mut replicas: BTreeMap<ModelIndex, Vec<usize>> = BTreeMap::new();
        for i in 0..candidates.len() {
            replicas.entry(candidates.view(i).spec.model).or_default().push(i);
        }
        let model = |replicas: Vec<usize>| {
            let positions: Vec<usize> = replicas.iter().map(|&i| candidates.position(i)).collect();
            Model { metrics: self.metrics(&positions), replicas }
        };
        replicas.into_values().map(model).collect()
    }

    fn metrics(&self, positions: &[usize]) -> Option<Vec<f64>> {
        let Options { tpot_percentile, ttft_percentile, .. } = self.options;
        let memory = self.memory();
        let mut metrics = Vec::new();
        if tpot_percentile > 0 {
            metrics.push(memory.percentile(positions, |seen| &seen.tpot_s, tpot_percentile)?);
        }
        if ttft_percentile > 0 {
            metrics.push(memory.percentile(positions, |seen| &seen.ttft_s, ttft_percentile)?);
        }
        (!metrics.is_empty()).then_some(metrics)
    }

    /// Returns the position in `models` of the one to take.
    fn pick(&self, models: &[Model]) -> usize {
        let unobserved = models.iter().position(|model| model.metrics.is_none());
        if self.options.try_unobserved
            && let Some(unobserved) = unobserved
        {
            return unobserved;
        }
        let known: Vec<(usize, &[f64])> =
            models.iter().enumerate().filter_map(|(m, model)| Some((m, model.metrics.as_deref()?))).collect();
        let score = |metrics: &[f64]| {
            let relative = |(x, value): (usize, &f64)| {
                let least = known.iter().map(|(_, of)| of[x]).fold(f64::INFINITY, f64::min);
                value / if least > 0.0 { least } else { 1.0 }
            };
            metrics.iter().enumerate().map(relative).sum::<f64>() / metrics.len() as f64
        };
        let best = known.iter().min_by(|(_, a), (_, b)| score(a).total_cmp(&score(b)));
        best.map_or(0, |&(m, _)| m)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Returns a percentile over the last values of these instances together.
    fn percentile(&self, positions: &[usize], of: fn(&Observed) -> &Window, percentile: u8) -> Option<f64> {
        let seen = positions.iter().filter_map(|position| self.instances.get(position));
        let mut values: Vec<(u64, f64)> = seen.flat_map(|seen| of(seen).iter().copied()).collect();
        values.sort_unstable_by_key(|(turn, _)| *turn);
        let newest = values.len().saturating_sub(REMEMBERED);
        quantile(values[newest..].iter().map(|(_, value)| *value).collect(), percentile)
    }
}

/// Returns a percentile of values in the order they came, interpolated between ranks; of one or two their
/// exponential moving average.
pub(super) fn quantile(mut values: Vec<f64>, percentile: u8) -> Option<f64> {
    match values[..] {
        [] => None,
        [only] => Some(only),
        [first, second] => Some(NEWEST * second + (1.0 - NEWEST) * first),
        _ => {
            let rank = f64::from(percentile) / 100.0 * (values.len() - 1) as f64;
            let (_, &mut below, above) = values.select_nth_unstable_by(rank as usize, f64::total_cmp);
            let next = above.iter().copied().min_by(f64::total_cmp).unwrap_or(below);
            Some(below + (next - below) * rank.fract())
        }
    }
}

impl Observed {
    fn push(window: &mut Window, turn: u64, value: f64) {
        window.push_back((turn, value));
        if window.len() > REMEMBERED {
            window.pop_front();
        }
    }
}

impl RoutingPolicy for VllmSr {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let models = self.models(candidates);
        let replicas = &models.get(self.pick(&models))?.replicas;
        let instance = replicas.iter().copied().min_by_key(|&i| residents(candidates.view(i)))?;
        Some(Choice::single(instance, Reason::LeastLatency))
    }

    /// Remembers the TTFT wherever it was seen, and the TPOT of complete answers.
    fn observe(&self, outcome: &Outcome) {
        let Some(ttft_s) = outcome.ttft_s else { return };
        let mut memory = self.memory();
        memory.turn += 1;
        let turn = memory.turn;
        let observed = memory.instances.entry(outcome.instance).or_default();
        Observed::push(&mut observed.ttft_s, turn, ttft_s);
        let after_first = outcome.output_tokens.unwrap_or(0).saturating_sub(1);
        if outcome.ending == Ending::Complete && after_first > 0 {
            Observed::push(&mut observed.tpot_s, turn, (outcome.e2e_s - ttft_s) / f64::from(after_first));
        }
    }

    /// The percentile of the TTFT of the candidate's model, seconds.
    fn believed_latency_s(&self, _query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        let model = candidates.view(i).spec.model;
        let replicas = (0..candidates.len()).filter(|&other| candidates.view(other).spec.model == model);
        let positions: Vec<usize> = replicas.map(|other| candidates.position(other)).collect();
        match self.options.ttft_percentile {
            0 => None,
            percentile => self.memory().percentile(&positions, |seen| &seen.ttft_s, percentile),
        }
    }
}
