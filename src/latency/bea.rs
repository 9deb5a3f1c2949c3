//! BEA: replays the instance's batches until the query's token (eq. 9–11).
//!
//! The state is rolled forward from its capture, so that a stale one costs accuracy slowly and a query
//! that comes in mid-step waits for that step.

use super::{
    Estimator, EstimatorEntry, EstimatorSetup,
    prefill_throughput::PrefillThroughput,
    replay::{Ended, Goal, Replayed, Scenario, StateError, plain},
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

/// The replaying estimator; hands views without state or coefficients on to eq. 8.
#[derive(Clone, Debug)]
pub struct Bea {
    step_limit: u64,
    otherwise: PrefillThroughput,
}

impl Bea {
    /// Makes it with its fallback.
    #[must_use]
    pub fn new(setup: &EstimatorSetup) -> Self {
        Self { step_limit: setup.config.step_limit, otherwise: PrefillThroughput::new(setup) }
    }

    fn replay(
        &self,
        load: QueryLoad,
        basis: &Basis,
        (b, overhead): (&BatchTimeCoefficients, &Overhead),
        now: Timestamp,
        horizon: Horizon,
    ) -> Estimate {
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
        let replayed = plain(&scenario, Goal { output_tokens, step_limit: self.step_limit });
        let mut estimate = Estimate {
            ttft: Err(NoEstimate::InvalidState),
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
            Err(StateError::TooLong { place: super::replay::Place::Query, .. }) => {
                estimate.ttft = Err(NoEstimate::Unschedulable);
            }
            Err(_) => {}
        }
        estimate
    }
}

impl Estimator for Bea {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn estimate(&self, load: QueryLoad, view: &InstanceView, now: Timestamp, horizon: Horizon) -> Estimate {
        match (&view.basis, &view.spec.batch_time) {
            (Some(basis), Some(b)) => self.replay(load, basis, (b, &view.spec.overhead), now, horizon),
            _ => self.otherwise.estimate(load, view, now, horizon),
        }
    }
}

/// Adds what a replay found, with the time outside the batches. A replay that reached the first token but
/// not the horizon still has its TTFT.
fn fill(estimate: &mut Estimate, replayed: &Replayed, overhead: &Overhead, horizon: Horizon) {
    estimate.ttft = match (replayed.wait, replayed.ttft) {
        (Some(wait), Some(ttft)) => Ok(Ttft {
            wait_s: overhead.ingress_s + seconds(wait),
            prefill_s: seconds(ttft - wait) + overhead.egress_s,
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
        estimate.tpot_s = Some(seconds(replayed.end - ttft) / after_first);
    }
    if horizon == Horizon::Completion {
        estimate.e2e_s = Some(overhead.ingress_s + seconds(replayed.end) + overhead.egress_s);
    }
}
