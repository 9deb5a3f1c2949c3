//! The members of a scenario's pool: what simulates them and what routers are told of them.

use std::sync::Arc;

use super::instance::Instance;
use crate::{
    domain::{
        BatchTimeCoefficients, Capabilities, InstanceId, InstanceSpec, ModelId, ModelIndex, ModelSpec,
        Overhead,
    },
    lab::{
        LabError, Misfit, PoolModel, Scenario,
        workload::{MeanAnswer, ModelFacts},
    },
    truth::{Profile, ProfileEntry, ProfileFit, TruthError},
};

/// The pool as routers are configured with it, and as workloads see it.
pub(super) struct Members {
    pub(super) models: Vec<ModelSpec>,
    pub(super) specs: Vec<InstanceSpec>,
    pub(super) facts: Vec<ModelFacts>,
    profiles: Vec<Profile>,
}

impl Members {
    /// Reads the profiles of a scenario's pool.
    pub(super) fn of(scenario: &Scenario) -> Result<Self, LabError> {
        let mut members = Self { models: vec![], specs: vec![], facts: vec![], profiles: vec![] };
        for (m, model) in scenario.pool.iter().enumerate() {
            let profile = Profile::built_in(&model.profile)?;
            let fit = fit(&model.profile)?;
            members.models.push(model_spec(model, &profile));
            members.facts.push(ModelFacts {
                id: profile.model.clone(),
                parameters_b: profile.parameters_b,
                max_model_len: profile.engine.max_model_len,
                output_factor: profile.output_tokens.factor,
            });
            let specs = (0..model.replicas).map(|k| {
                let id = format!("{}-{k}", profile.model);
                instance_spec(&id, m, model, &fit, scenario)
            });
            members.specs.extend(specs);
            members.profiles.push(profile);
        }
        match members.specs.is_empty() {
            true => Err(LabError::Invalid {
                place: scenario.name.clone(),
                key: String::from("pool"),
                rule: String::from("has no instance; give at least one model at least one replica"),
            }),
            false => Ok(members),
        }
    }

    /// Starts the instances of one run.
    pub(super) fn start(&self, seed: u64) -> Result<Vec<Instance>, LabError> {
        let start = |(spec, number): (&InstanceSpec, u64)| {
            let profile = self.profiles[spec.model.0].clone();
            let own_seed = seed.wrapping_mul(1_000_003).wrapping_add(number);
            Instance::new(spec.id.to_string(), spec.model.0, profile, own_seed)
        };
        self.specs.iter().zip(0..).map(start).collect()
    }
}

fn fit(profile: &str) -> Result<ProfileFit, TruthError> {
    ProfileEntry::find(profile)
        .ok_or_else(|| TruthError::UnknownProfile { name: profile.to_owned(), known: String::new() })?
        .parse_fit()
}

fn model_spec(model: &PoolModel, profile: &Profile) -> ModelSpec {
    ModelSpec {
        id: ModelId::from(profile.model.as_str()),
        parameters_b: profile.parameters_b,
        max_model_len_tokens: profile.engine.max_model_len,
        price: model.price,
        capabilities: Capabilities::default(),
        prior_accuracy: None,
        prior_output_tokens: None,
    }
}

fn instance_spec(
    id: &str,
    model: usize,
    pool_model: &PoolModel,
    fit: &ProfileFit,
    scenario: &Scenario,
) -> InstanceSpec {
    let Misfit { batch_time_factor, .. } = scenario.misfit;
    let b = fit.batch_time;
    let batch_time = BatchTimeCoefficients {
        b0_s: b.b0_s * batch_time_factor,
        b1_s: b.b1_s * batch_time_factor,
        b2_s: b.b2_s * batch_time_factor,
        b3_s: b.b3_s * batch_time_factor,
        b4_s: b.b4_s * batch_time_factor,
    };
    let delay_s = scenario.network_delay_s;
    InstanceSpec {
        id: InstanceId::from(id),
        model: ModelIndex(model),
        dp_rank: 0,
        price: pool_model.price,
        batch_time: Some(batch_time),
        overhead: Overhead {
            ingress_s: fit.overhead.ingress_s + delay_s,
            egress_s: fit.overhead.egress_s + delay_s,
        },
        effective_prefill_tokens_per_s: Some(fit.effective_prefill_tokens_per_s / batch_time_factor),
        peak_prefill_tokens_per_s: Some(fit.peak_prefill_tokens_per_s / batch_time_factor),
    }
}

/// Returns the models with the priors of a workload's means.
pub(super) fn with_priors(models: &mut [ModelSpec], means: &[MeanAnswer]) {
    for (model, mean) in models.iter_mut().zip(means) {
        model.prior_accuracy = mean.score;
        model.prior_output_tokens = mean.output_tokens;
    }
}

/// A shared name, so that records copy none.
pub(super) fn shared(names: impl Iterator<Item = String>) -> Vec<Arc<str>> {
    names.map(Arc::from).collect()
}
