//! BEA: replays the instance's batches until the query's token (eq. 9–11).
//!
//! The state is rolled forward from its capture, so that a stale one costs accuracy slowly and a query
//! that comes in mid-step waits for that step.

use super::{
    Estimator, EstimatorEntry, EstimatorSetup,
    prefill_throughput::PrefillThroughput,
    replay::{Ended, Goal, Place, Replayed, Scenario, Scratches, StateError, fast},
};
use crate::{
    domain::{
        Basis, BasisSource, BatchTimeCoefficients, Estimate, EstimateSource, Horizon, InstanceView,
        NoEstimate, Overhead, QueryLoad, Timestamp, Ttft,
    },
    engine::{BatchTime, seconds},
};

/// The registry's line.
pub(super) const ENTRY: EstimatorEntry = EstimatorEntry {
    name: "bea",
    summary: "replay of the instance's batches (eq. 9-11), else eq. 8, else a guess",
    construct: |setup| Box::new(Bea::new(setup)),
};

/// The replaying estimator; hands views without state or coefficients, and states that cannot be replayed,
/// on to eq. 8.
#[derive(Debug)]
pub struct Bea {
    step_limit: u64,
    scratches: Scratches,
    otherwise: PrefillThroughput,
}

impl Bea {
    /// Makes it with its fallback.
    #[must_use]
    pub fn new(setup: &EstimatorSetup) -> Self {
        Self {
            step_limit: setup.config.step_limit,
            scratches: Scratches::default(),
            otherwise: PrefillThroughput::new(setup),
        }
    }

    /// Returns what a replay says; absent where the state breaks its rules.
    fn replay(
        &self,
        load: QueryLoad,
        basis: &Basis,
        (b, overhead): (&BatchTimeCoefficients, &Overhead),
        now: Timestamp,
        horizon: Horizon,
    ) -> Option<Estimate> {
        let scenario = Scenario {
            snapshot: &basis.snapshot,
            predicted_remaining: &basis.predicted_remaining,
            dispatched: &basis.dispatched,
            query: load,
            now: now.after_s(overhead.ingress_s),
            batch_time: BatchTime::from(b),
        };
        let output_tokens = match horizon {
            Horizon::FirstToken => 1,
            Horizon::Tokens(tokens) => tokens.max(1),
            Horizon::Completion => u32::MAX,
        };
        let goal = Goal { output_tokens, step_limit: self.step_limit };
        let replayed = self.scratches.lend(|scratch| fast(&scenario, goal, scratch));
        let mut estimate = Estimate {
            ttft: Err(NoEstimate::Unschedulable),
            e2e_s: None,
            tpot_s: None,
            spread_s: None,
            source: match basis.source {
                BasisSource::Snapshot => EstimateSource::Bea,
                BasisSource::Ledger => EstimateSource::BeaLedger,
            },
            age_s: Some(now.since(basis.snapshot.captured_unix_us).as_secs_f64()),
        };
        match replayed {
            Ok(replayed) => fill(&mut estimate, &replayed, overhead, horizon),
            Err(StateError::TooLong { place: Place::Query, .. }) => {}
            Err(_) => return None,
        }
        Some(estimate)
    }
}

impl Estimator for Bea {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn estimate(&self, load: QueryLoad, view: &InstanceView, now: Timestamp, horizon: Horizon) -> Estimate {
        let replayed = match (&view.basis, &view.spec.batch_time) {
            (Some(basis), Some(b)) => self.replay(load, basis, (b, &view.spec.overhead), now, horizon),
            _ => None,
        };
        replayed.unwrap_or_else(|| self.otherwise.estimate(load, view, now, horizon))
    }

    fn least_ttft_s(&self, load: QueryLoad, view: &InstanceView) -> f64 {
        let Some((basis, b)) = view.basis.as_ref().zip(view.spec.batch_time.as_ref()) else { return 0.0 };
        let overhead = view.spec.overhead;
        let outside_s = overhead.ingress_s + overhead.egress_s;
        let budget = basis.snapshot.engine.max_num_batched_tokens;
        (outside_s + alone_s(load, budget, b)) * (1.0 - ROUNDING)
    }
}

/// Far above what adding seconds as floats can lose, far below what an estimate can tell.
const ROUNDING: f64 = 1e-9;

/// Returns how long the batches of an idle engine take over a prompt, seconds: whatever else is in a batch only
/// adds to its time (eq. 12), so no replay ends sooner. 0 where a coefficient is negative.
fn alone_s(load: QueryLoad, budget_tokens: u32, b: &BatchTimeCoefficients) -> f64 {
    if [b.b0_s, b.b1_s, b.b2_s, b.b3_s, b.b4_s].iter().any(|b| *b < 0.0) {
        return 0.0;
    }
    let prompt = u64::from(load.prompt_tokens);
    let cached = u64::from(load.cached_tokens).min(prompt.saturating_sub(1));
    let tokens = prompt - cached;
    let pairs = (prompt * (prompt + 1) - cached * (cached + 1)) / 2;
    let batches = tokens.div_ceil(u64::from(budget_tokens.max(1)));
    batches as f64 * b.b0_s + tokens as f64 * b.b1_s + pairs as f64 * b.b3_s + b.b4_s
}

/// Adds what a replay found, with the time outside the batches. A replay that reached the first token but
/// not the horizon still has its TTFT.
fn fill(estimate: &mut Estimate, replayed: &Replayed, overhead: &Overhead, horizon: Horizon) {
    estimate.ttft = match (replayed.wait, replayed.ttft) {
        (Some(wait), Some(ttft)) => Ok(Ttft {
            wait_s: overhead.ingress_s + seconds(wait),
            prefill_s: seconds(ttft.saturating_sub(wait)) + overhead.egress_s,
        }),
        _ if replayed.ended == Ended::Limit => Err(NoEstimate::Limit),
        _ => Err(NoEstimate::Unschedulable),
    };
    let Some(ttft) = replayed.ttft else { return };
    if replayed.ended != Ended::Reached || horizon == Horizon::FirstToken {
        return;
    }
    if replayed.output_tokens > 1 {
        let after_first = f64::from(replayed.output_tokens - 1);
        estimate.tpot_s = Some(seconds(replayed.end.saturating_sub(ttft)) / after_first);
    }
    if horizon == Horizon::Completion {
        estimate.e2e_s = Some(overhead.ingress_s + seconds(replayed.end) + overhead.egress_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::tests::{basis, load, spec, view};

    fn bea() -> Bea {
        Bea::new(&EstimatorSetup::default())
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn ingress_goes_to_the_wait_and_egress_to_the_prefill() {
        // Two residents' batches of 10 ms are under way: the query comes in 4 ms into the second.
        let view = view(spec(), Some(basis()));
        let now = basis().snapshot.captured_unix_us.after_s(0.012);
        let estimate = bea().estimate(load(100), &view, now, Horizon::FirstToken);
        let ttft = estimate.ttft.unwrap();
        assert!(close(ttft.wait_s, 0.002 + 0.006), "{ttft:?}");
        assert!(close(ttft.prefill_s, 0.010 + 0.003), "{ttft:?}");
        assert_eq!(estimate.source, EstimateSource::Bea);
        assert_eq!((estimate.e2e_s, estimate.tpot_s, estimate.age_s), (None, None, Some(0.012)));
    }

    #[test]
    fn horizons_past_the_first_token_run_on() {
        let view = view(spec(), Some(basis()));
        let now = basis().snapshot.captured_unix_us.after_s(0.008);
        let estimate = bea().estimate(load(100), &view, now, Horizon::Completion);
        let (tpot_s, e2e_s) = (estimate.tpot_s.unwrap(), estimate.e2e_s.unwrap());
        // Five tokens: one by prefill at 20 ms from arrival, four decodes of 10 ms.
        assert!(close(tpot_s, 0.010), "{tpot_s}");
        assert!(close(e2e_s, estimate.ttft_s() + 4.0 * 0.010), "{e2e_s}");
        let partial = bea().estimate(load(100), &view, now, Horizon::Tokens(3));
        assert_eq!((partial.tpot_s, partial.e2e_s), (Some(tpot_s), None));
    }

    #[test]
    fn no_estimate_falls_below_its_bound_and_an_idle_engine_meets_it() {
        let mut idle = basis();
        let snapshot = std::sync::Arc::make_mut(&mut idle.snapshot);
        (snapshot.running, snapshot.waiting, snapshot.in_flight) = (vec![], vec![], None);
        let now = snapshot.captured_unix_us;
        for prompt in [1, 16, 300, 5_000, 20_000, 39_000] {
            let busy = view(spec(), Some(basis()));
            let least_s = bea().least_ttft_s(load(prompt), &busy);
            assert!(least_s > 0.0);
            for later_s in [0.0, 0.004, 0.013] {
                let at = now.after_s(later_s);
                let ttft_s = bea().estimate(load(prompt), &busy, at, Horizon::FirstToken).ttft_s();
                assert!(ttft_s >= least_s, "{prompt}: {ttft_s} < {least_s}");
            }
            let empty = view(spec(), Some(idle.clone()));
            let ttft_s = bea().estimate(load(prompt), &empty, now, Horizon::FirstToken).ttft_s();
            assert!((ttft_s / bea().least_ttft_s(load(prompt), &empty) - 1.0).abs() < 1e-6, "{prompt}");
        }
        let unknown = view(spec(), None);
        assert_eq!(bea().least_ttft_s(load(100), &unknown), 0.0);
    }

    #[test]
    fn a_replay_that_cannot_answer_says_why() {
        let mut setup = EstimatorSetup::default();
        setup.config.step_limit = 2;
        let mut crowded = basis();
        let snapshot = std::sync::Arc::make_mut(&mut crowded.snapshot);
        snapshot.engine.max_num_seqs = 2;
        let now = snapshot.captured_unix_us;
        let limited =
            Bea::new(&setup).estimate(load(100), &view(spec(), Some(crowded)), now, Horizon::FirstToken);
        assert_eq!(limited.ttft, Err(NoEstimate::Limit));
        let view = view(spec(), Some(basis()));
        let too_long = bea().estimate(load(40_000), &view, now, Horizon::FirstToken);
        assert_eq!(too_long.ttft, Err(NoEstimate::Unschedulable));
    }

    #[test]
    fn a_state_that_breaks_the_rules_goes_to_coarser_estimators() {
        let broken = |change: &dyn Fn(&mut crate::domain::Snapshot)| {
            let mut basis = basis();
            change(std::sync::Arc::make_mut(&mut basis.snapshot));
            let now = basis.snapshot.captured_unix_us;
            let estimate = bea().estimate(load(100), &view(spec(), Some(basis)), now, Horizon::FirstToken);
            (estimate.source, estimate.ttft.is_ok())
        };
        let coarser = (EstimateSource::PrefillThroughput, true);
        assert_eq!(broken(&|s| s.running[0].computed_tokens = 9_999), coarser);
        assert_eq!(broken(&|s| s.engine.scheduler = String::from("other")), coarser);
        assert_eq!(broken(&|s| s.running[0].id = String::from("a-stranger-without-length")), coarser);
        assert_eq!(broken(&|_| {}), (EstimateSource::Bea, true));
    }

    #[test]
    fn views_without_state_or_coefficients_go_to_coarser_estimators() {
        let uncalibrated = || crate::domain::InstanceSpec { batch_time: None, ..spec() };
        let now = basis().snapshot.captured_unix_us;
        let source = |view| bea().estimate(load(100), &view, now, Horizon::FirstToken).source;
        assert_eq!(source(view(uncalibrated(), Some(basis()))), EstimateSource::PrefillThroughput);
        assert_eq!(source(view(spec(), None)), EstimateSource::PrefillThroughput);
        let unknown = crate::domain::InstanceSpec { effective_prefill_tokens_per_s: None, ..uncalibrated() };
        assert_eq!(source(view(unknown, Some(basis()))), EstimateSource::Guess);
        let ledger = Basis { source: BasisSource::Ledger, ..basis() };
        assert_eq!(source(view(spec(), Some(ledger))), EstimateSource::BeaLedger);
    }
}
