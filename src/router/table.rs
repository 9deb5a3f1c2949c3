//! One row an instance while a decision is made, and the decision's table in the end.

use std::cell::{OnceCell, RefCell};

use super::predictions::ModelView;
use crate::{
    domain::{
        Candidate, Estimate, Horizon, Ineligible, InstanceView, ModelSpec, PROMPT_BOUND, Prediction, Query,
    },
    policy,
};

/// What is known of one instance while deciding.
pub(super) struct Row {
    pub(super) view: InstanceView,
    pub(super) model: ModelView,
    pub(super) prediction: Prediction,
    pub(super) ineligible: Option<Ineligible>,
    first_token: OnceCell<Estimate>,
    least_ttft_s: OnceCell<f64>,
    further: RefCell<Vec<(Horizon, Estimate)>>,
}

impl Row {
    pub(super) fn new(
        view: InstanceView,
        model: ModelView,
        prediction: Prediction,
        ineligible: Option<Ineligible>,
    ) -> Self {
        Self {
            view,
            model,
            prediction,
            ineligible,
            first_token: OnceCell::new(),
            least_ttft_s: OnceCell::new(),
            further: RefCell::default(),
        }
    }

    /// Returns the kept estimate up to `horizon`, made by `make` at the first call.
    pub(super) fn estimate(&self, horizon: Horizon, make: impl FnOnce() -> Estimate) -> Estimate {
        if horizon == Horizon::FirstToken {
            return *self.first_token.get_or_init(make);
        }
        let kept = self.further.borrow().iter().find(|(h, _)| *h == horizon).map(|(_, e)| *e);
        kept.unwrap_or_else(|| {
            let estimate = make();
            self.further.borrow_mut().push((horizon, estimate));
            estimate
        })
    }

    /// Returns the kept least TTFT, seconds, found by `make` at the first call.
    pub(super) fn least_ttft_s(&self, make: impl FnOnce() -> f64) -> f64 {
        *self.least_ttft_s.get_or_init(make)
    }

    /// Returns the row as the decision shows it.
    pub(super) fn candidate(&self, query: &Query, spec: &ModelSpec) -> Candidate {
        let estimate = self.first_token.get();
        let ttft = estimate.and_then(|estimate| estimate.ttft.ok());
        let least_ttft_s = self.least_ttft_s.get().copied().filter(|&s| s > 0.0 && estimate.is_none());
        let target_s = query.ttft_target.map(|target| target.as_secs_f64());
        let ruled_out = least_ttft_s.zip(target_s).is_some_and(|(least_s, target_s)| least_s > target_s);
        Candidate {
            instance: self.view.spec.id.clone(),
            model: spec.id.as_str().to_owned(),
            prompt_tokens: self.model.prompt.tokens,
            count_source: self.model.prompt.source.label().to_owned(),
            accuracy: self.prediction.accuracy,
            output_tokens: self.prediction.output_tokens,
            cost_usd: self.prediction.cost_usd,
            utility: self.prediction.utility,
            predictor: self.model.source.to_owned(),
            wait_s: ttft.map(|ttft| ttft.wait_s),
            prefill_s: ttft.map(|ttft| ttft.prefill_s),
            ttft_s: ttft.map(crate::domain::Ttft::total_s),
            spread_s: estimate.and_then(|estimate| estimate.spread_s),
            least_ttft_s,
            source: match estimate {
                Some(estimate) => Some(estimate.source.label().to_owned()),
                None => ruled_out.then(|| PROMPT_BOUND.to_owned()),
            },
            no_estimate: estimate
                .and_then(|estimate| estimate.ttft.err())
                .map(|none| none.label().to_owned()),
            age_s: estimate.and_then(|estimate| estimate.age_s),
            ineligible: self.ineligible.clone(),
            feasible: match estimate {
                Some(estimate) => Some(policy::feasible(estimate, query.ttft_target)),
                None => ruled_out.then_some(false),
            },
            interchangeable: false,
            chosen: false,
        }
    }
}
