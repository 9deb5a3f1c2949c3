//! A labelled guess from model size and this router's own load, where nothing is calibrated.
//!
//! Its numbers are those of one H100 a model (`docs/` and the engine profiles have measured ones) and can
//! be off by a factor; its stated spread is as large as itself.

use std::sync::Arc;

use super::{Estimator, EstimatorEntry, EstimatorSetup};
use crate::domain::{Estimate, EstimateSource, Horizon, InstanceView, QueryLoad, Timestamp, Ttft};

/// The registry's line.
pub(super) const ENTRY: EstimatorEntry = EstimatorEntry {
    name: "guess",
    summary: "a rough guess from model size and load; nothing calibrated",
    construct: |setup| Box::new(Guess::new(setup)),
};

/// Prefill tokens a second of a model with one billion parameters: 8.2 billion of them reach 33,500 on
/// one H100 (a fit on published Qwen3-8B bf16 latencies, vLLM 0.30), and time goes with parameters.
const TOKENS_PER_S_AT_1B: f64 = 270_000.0;

/// Seconds of a decode step: launch overhead and, a billion parameters, reading the weights (the same
/// fit: 6.8 ms for 8.2 billion).
const STEP_BASE_S: f64 = 1.5e-3;
const STEP_S_PER_B: f64 = 0.65e-3;

/// Parameters assumed of a model whose size is not configured, billions.
const UNKNOWN_PARAMETERS_B: f64 = 8.0;

/// The guess.
#[derive(Clone, Debug)]
pub struct Guess {
    parameters_b: Arc<[f64]>,
}

impl Guess {
    /// Makes it over the pool's models.
    #[must_use]
    pub fn new(setup: &EstimatorSetup) -> Self {
        Self { parameters_b: Arc::clone(&setup.parameters_b) }
    }
}

impl Estimator for Guess {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn estimate(&self, load: QueryLoad, view: &InstanceView, _now: Timestamp, _horizon: Horizon) -> Estimate {
        let known = self.parameters_b.get(view.spec.model.0).copied().filter(|b| b.is_finite() && *b > 0.0);
        let parameters_b = known.unwrap_or(UNKNOWN_PARAMETERS_B);
        let tokens_per_s = TOKENS_PER_S_AT_1B / parameters_b;
        let step_s = STEP_BASE_S + STEP_S_PER_B * parameters_b;
        let busy = view.load.requests > 0 || view.resident_requests.is_some_and(|n| n > 0);
        let current_step_s = if busy { step_s / 2.0 } else { 0.0 };
        let own_tokens = load.prompt_tokens.saturating_sub(load.cached_tokens).max(1);
        let ttft = Ttft {
            wait_s: view.spec.overhead.ingress_s
                + current_step_s
                + view.load.uncached_prefill_tokens as f64 / tokens_per_s,
            prefill_s: step_s + f64::from(own_tokens) / tokens_per_s + view.spec.overhead.egress_s,
        };
        Estimate {
            ttft: Ok(ttft),
            e2e_s: None,
            tpot_s: None,
            spread_s: Some(ttft.total_s()),
            source: EstimateSource::Guess,
            age_s: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::tests::{load, spec, view};

    fn guess(parameters_b: &[f64], requests: u32, prefill_tokens: u64) -> Estimate {
        let guess =
            Guess::new(&EstimatorSetup { parameters_b: parameters_b.into(), ..EstimatorSetup::default() });
        let mut view = view(spec(), None);
        (view.load.requests, view.load.uncached_prefill_tokens) = (requests, prefill_tokens);
        guess.estimate(load(1_000), &view, Timestamp::default(), Horizon::FirstToken)
    }

    #[test]
    fn it_grows_with_size_and_load_and_is_labelled() {
        let idle = guess(&[8.2], 0, 0);
        assert!(idle.ttft_s() > 0.03 && idle.ttft_s() < 0.06, "1,000 tokens on 8.2 billion: {idle:?}");
        assert!(guess(&[32.0], 0, 0).ttft_s() > 2.0 * idle.ttft_s());
        assert!(guess(&[8.2], 3, 5_000).ttft_s() > idle.ttft_s() + 0.1);
        assert_eq!((idle.source, idle.spread_s), (EstimateSource::Guess, Some(idle.ttft_s())));
    }

    #[test]
    fn an_unknown_size_is_taken_as_eight_billion() {
        assert_eq!(guess(&[], 0, 0), guess(&[8.0], 0, 0));
        assert_eq!(guess(&[0.0], 0, 0), guess(&[8.0], 0, 0));
    }
}
