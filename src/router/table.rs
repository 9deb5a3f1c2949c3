//! One row an instance while a decision is made, and the decision's table in the end.

use std::cell::{OnceCell, RefCell};

use super::predictions::ModelView;
use crate::{
    domain::{Candidate, Estimate, Horizon, Ineligible, InstanceView, ModelSpec, Prediction, Query},
    policy,
};

/// What is known of one instance while deciding.
pub(super) struct Row {
    pub(super) view: InstanceView,
    pub(super) model: ModelView,
    pub(super) prediction: Prediction,
    pub(super) ineligible: Option<Ineligible>,
    first_token: OnceCell<Estimate>,
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

    /// Returns the row as the decision shows it.
    pub(super) fn candidate(&self, query: &Query, spec: &ModelSpec) -> Candidate {
        let estimate = self.first_token.get();
        let ttft = estimate.and_then(|estimate| estimate.ttft.ok());
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
            source: estimate.map(|estimate| estimate.source.label().to_owned()),
            no_estimate: estimate
                .and_then(|estimate| estimate.ttft.err())
                .map(|none| none.label().to_owned()),
            age_s: estimate.and_then(|estimate| estimate.age_s),
            ineligible: self.ineligible.clone(),
            feasible: estimate.map(|estimate| policy::feasible(estimate, query.ttft_target)),
            interchangeable: false,
            chosen: false,
        }
    }
}
