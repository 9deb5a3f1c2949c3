//! Who comes when: arrivals drawn ahead of time, requests drawn as they come, a target for each.

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::lab::{
    Item, LabError, Scenario, TargetRule,
    arrivals::{self, Arrivals, Files},
    workload::{self, ModelFacts, Setup, Workload},
};

/// Generator streams of one seed; engines have seeds of their own.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Arrivals = 0,
    Workload = 1,
    Targets = 2,
    Routing = 3,
    Mouths = 4,
    Means = 5,
}

/// Returns the generator of one stream.
pub(super) fn generator(seed: u64, stream: Stream) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream as u64);
    rng
}

/// The traffic of one run.
pub(super) struct Traffic {
    arrivals: Box<dyn Arrivals>,
    workload: Box<dyn Workload>,
    targets: TargetRule,
    arrivals_rng: ChaCha8Rng,
    workload_rng: ChaCha8Rng,
    targets_rng: ChaCha8Rng,
    /// The last arrival drawn; absent: none yet, or no more come of themselves.
    drawn_us: Option<u64>,
    ended: bool,
}

impl Traffic {
    /// Sets up a scenario's traffic.
    pub(super) fn new(
        scenario: &Scenario,
        models: &[ModelFacts],
        feature_version: &str,
        files: &Files,
        seed: u64,
    ) -> Result<Self, LabError> {
        Ok(Self {
            arrivals: arrivals::build(&scenario.arrivals.name, &scenario.arrivals.options, files)?,
            workload: make_workload(scenario, models, feature_version, files)?,
            targets: scenario.targets,
            arrivals_rng: generator(seed, Stream::Arrivals),
            workload_rng: generator(seed, Stream::Workload),
            targets_rng: generator(seed, Stream::Targets),
            drawn_us: None,
            ended: false,
        })
    }

    /// Draws the arrivals up to the first one after `until_us`, none at or after `end_us`.
    pub(super) fn draw(&mut self, until_us: u64, end_us: u64) -> Vec<u64> {
        let mut drawn = Vec::new();
        while !self.ended && self.drawn_us.is_none_or(|last| last <= until_us) {
            match self.arrivals.next_us(&mut self.arrivals_rng).filter(|at_us| *at_us < end_us) {
                Some(at_us) => {
                    self.drawn_us = Some(at_us);
                    drawn.push(at_us);
                }
                None => self.ended = true,
            }
        }
        drawn
    }

    /// Learns that a request ended; returns the arrival that this sets free.
    pub(super) fn request_ended(&mut self, at_us: u64) -> Option<u64> {
        self.arrivals.ended(at_us, &mut self.arrivals_rng)
    }

    /// Draws the next request; absent: the workload has no more.
    pub(super) fn item(&mut self) -> Option<Item> {
        self.workload.next(&mut self.workload_rng)
    }

    /// Draws the target of a request (paper A.2); absent: requests have none.
    pub(super) fn target(&mut self, prompt_tokens: u32) -> Option<Duration> {
        let rule = self.targets;
        let u_ms = uniform(&mut self.targets_rng, rule.jitter_ms);
        let v = uniform(&mut self.targets_rng, rule.jitter_factor);
        let linear_ms = u_ms + (rule.base_ms + rule.slope_ms_per_token * f64::from(prompt_tokens)) * v;
        let target_ms = linear_ms.max(rule.least_ms).min(rule.most_ms);
        rule.enabled.then(|| Duration::from_micros((target_ms * 1e3).round() as u64))
    }
}

/// Makes a scenario's workload.
pub(super) fn make_workload(
    scenario: &Scenario,
    models: &[ModelFacts],
    feature_version: &str,
    files: &Files,
) -> Result<Box<dyn Workload>, LabError> {
    let named = &scenario.workload;
    workload::build(&named.name, &Setup { options: &named.options, models, feature_version, files })
}

fn uniform(rng: &mut ChaCha8Rng, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * rng.random::<f64>()
}

/// Returns the hashes that a prompt's own full blocks have.
pub(super) fn prompt_blocks(item: &Item) -> Arc<[u64]> {
    let blocks = (item.prompt_tokens / crate::domain::PREFIX_BLOCK_TOKENS) as usize;
    match item.block_hashes.get(..blocks) {
        Some(own) if own.len() < item.block_hashes.len() => own.into(),
        _ => Arc::clone(&item.block_hashes),
    }
}
