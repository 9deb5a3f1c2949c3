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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::tests::{basis, load, spec, view};

    #[test]
    fn residents_count_what_they_still_prefill() {
        let mut basis = basis();
        let dispatched = |id: &str, prompt_tokens, cached_tokens| crate::domain::Dispatched {
            id: id.to_owned(),
            at_unix_us: basis.snapshot.captured_unix_us,
            prompt_tokens,
            cached_tokens,
            cached_blocks_in_use: 0,
            output_tokens: 5,
            priority: 0,
        };
        basis.dispatched = [dispatched("d", 100, 60), dispatched("a", 9_000, 0)].into();
        let snapshot = std::sync::Arc::make_mut(&mut basis.snapshot);
        // Half a prompt, and a preempted one that comes back with its output.
        snapshot.running[0] = Resident {
            prompt_tokens: 500,
            computed_tokens: 200,
            output_tokens: 0,
            ..snapshot.running[0].clone()
        };
        let waiting = Resident {
            id: String::from("w"),
            prompt_tokens: 70,
            output_tokens: 10,
            cached_tokens: 32,
            ..Resident::default()
        };
        snapshot.waiting.push(waiting);
        snapshot.waiting_beyond.prefill_tokens = 1_000;
        assert_eq!(pending_prefill_tokens(&basis), 300 + 48 + 40 + 1_000);
    }

    #[test]
    fn wait_and_prefill_are_tokens_over_throughput() {
        let setup = EstimatorSetup::default();
        let estimator = PrefillThroughput::new(&setup);
        let mut basis = basis();
        std::sync::Arc::make_mut(&mut basis.snapshot).waiting_beyond.prefill_tokens = 500;
        let load = QueryLoad { cached_tokens: 100, ..load(300) };
        let now = basis.snapshot.captured_unix_us.after_s(0.5);
        let estimate = estimator.estimate(load, &view(spec(), Some(basis)), now, Horizon::FirstToken);
        // 10,000 tokens a second; ingress 2 ms, egress 3 ms.
        let ttft = estimate.ttft.unwrap();
        assert!((ttft.wait_s - 0.052).abs() < 1e-12 && (ttft.prefill_s - 0.023).abs() < 1e-12, "{ttft:?}");
        assert_eq!(estimate.age_s, Some(0.5));
    }

    #[test]
    fn without_a_state_the_routers_own_load_stands_in() {
        let mut view = view(spec(), None);
        view.load.uncached_prefill_tokens = 1_000;
        let estimator = PrefillThroughput::new(&EstimatorSetup::default());
        let estimate = estimator.estimate(load(100), &view, Timestamp::default(), Horizon::FirstToken);
        assert!((estimate.ttft.unwrap().wait_s - 0.102).abs() < 1e-12);
        assert_eq!(estimate.age_s, None);
    }
}
