//! Eq. 8: prefill still to do over the effective prefill throughput.
//!
//! Ignores decode load and memory; the paper reports 85% error for it. Used where no batch time is
//! calibrated.

use super::{Estimator, EstimatorEntry, EstimatorSetup, guess::Guess};
use crate::domain::{
    Basis, Estimate, EstimateSource, Horizon, InstanceView, QueryLoad, Timestamp, Ttft, snapshot::Resident,
};

/// The registry's line.
pub(super) const ENTRY: EstimatorEntry = EstimatorEntry {
    name: "prefill-throughput",
    summary: "pending prefill tokens over effective throughput (eq. 8)",
    construct: |setup| Box::new(PrefillThroughput::new(setup)),
};

/// The eq. 8 estimator; hands views without a throughput on to the guess.
#[derive(Clone, Debug)]
pub struct PrefillThroughput {
    otherwise: Guess,
}

impl PrefillThroughput {
    /// Makes it with its fallback.
    #[must_use]
    pub fn new(setup: &EstimatorSetup) -> Self {
        Self { otherwise: Guess::new(setup) }
    }
}

impl Estimator for PrefillThroughput {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn estimate(&self, load: QueryLoad, view: &InstanceView, now: Timestamp, horizon: Horizon) -> Estimate {
        let Some(throughput) = view.spec.effective_prefill_tokens_per_s.filter(|t| *t > 0.0) else {
            return self.otherwise.estimate(load, view, now, horizon);
        };
        let pending_tokens = match &view.basis {
            Some(basis) => pending_prefill_tokens(basis),
            None => view.load.uncached_prefill_tokens,
        };
        let own_tokens = load.prompt_tokens.saturating_sub(load.cached_tokens).max(1);
        Estimate {
            ttft: Ok(Ttft {
                wait_s: view.spec.overhead.ingress_s + pending_tokens as f64 / throughput,
                prefill_s: f64::from(own_tokens) / throughput + view.spec.overhead.egress_s,
            }),
            e2e_s: None,
            tpot_s: None,
            spread_s: None,
            source: EstimateSource::PrefillThroughput,
            age_s: view.basis.as_ref().map(|b| now.since(b.snapshot.captured_unix_us).as_secs_f64()),
        }
    }
}

/// Returns Σ of eq. 8: prefill tokens that residents, unlisted and dispatched requests still need.
#[must_use]
pub fn pending_prefill_tokens(basis: &Basis) -> u64 {
    let snapshot = &basis.snapshot;
    let known = |r: &Resident| r.prompt_tokens.saturating_add(r.output_tokens);
    let running = snapshot.running.iter().map(|resident| {
        let left = known(resident).saturating_sub(resident.computed_tokens);
        // One token left with output there is a decode, not prefill.
        if left == 1 && resident.output_tokens > 0 { 0 } else { left }
    });
    let waiting = snapshot.waiting.iter().map(|r| known(r).saturating_sub(r.cached_tokens));
    let listed = |id: &str| snapshot.running.iter().chain(&snapshot.waiting).any(|r| r.id == id);
    let dispatched = basis.dispatched.iter().filter(|d| !listed(&d.id));
    let dispatched = dispatched.map(|d| d.prompt_tokens.saturating_sub(d.cached_tokens));
    let tokens = running.chain(waiting).chain(dispatched).map(u64::from).sum::<u64>();
    tokens + snapshot.waiting_beyond.prefill_tokens
}
