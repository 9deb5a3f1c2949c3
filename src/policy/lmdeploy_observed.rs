//! LMDeploy's proxy, `min_observed_latency`: least mean time of the last whole answers.
//!
//! The rule of InternLM/lmdeploy at 1263d5c. An instance that never answered counts as infinitely slow, so
//! as there the first one keeps all traffic until another has answered.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, RoutingPolicy, rank::first_least, registry::parse};
use crate::domain::{Ending, Outcome, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "lmdeploy-observed",
    summary: "least mean time of the last whole answers (LMDeploy, observed latency)",
    build: |options| {
        parse::<Options>(ENTRY.name, options).map(|_| Box::new(LmDeployObserved::default()) as _)
    },
};

/// The answers remembered of an instance (LMDeploy's).
const REMEMBERED: usize = 15;

/// Options of [`LmDeployObserved`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

/// Takes the least mean, the first among equals.
#[derive(Debug, Default)]
pub(super) struct LmDeployObserved {
    /// Seconds of the last complete answers, by pool position.
    seconds: Mutex<HashMap<usize, VecDeque<f64>>>,
}

impl LmDeployObserved {
    fn mean_s(&self, position: usize) -> Option<f64> {
        let seconds = self.seconds();
        let own = seconds.get(&position)?;
        Some(own.iter().sum::<f64>() / own.len() as f64)
    }

    fn seconds(&self) -> MutexGuard<'_, HashMap<usize, VecDeque<f64>>> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RoutingPolicy for LmDeployObserved {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let mean = |i| self.mean_s(candidates.position(i)).unwrap_or(f64::INFINITY);
        let means: Vec<f64> = (0..candidates.len()).map(mean).collect();
        Some(Choice::single(first_least(&means)?, Reason::LeastLatency))
    }

    /// Remembers complete answers; the time of one that failed says nothing of an answer's.
    fn observe(&self, outcome: &Outcome) {
        if outcome.ending == Ending::Complete {
            let mut seconds = self.seconds();
            let own = seconds.entry(outcome.instance).or_default();
            own.push_back(outcome.e2e_s);
            if own.len() > REMEMBERED {
                own.pop_front();
            }
        }
    }

    /// The whole answer's latency, seconds.
    fn believed_latency_s(&self, _query: &Query, candidates: &dyn Candidates, i: usize) -> Option<f64> {
        self.mean_s(candidates.position(i))
    }
}
