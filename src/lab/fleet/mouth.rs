//! One router of the fleet: the very router that serves, with a pool and a memory of its own.

use std::{cell::Cell, sync::Arc};

use arc_swap::ArcSwap;
use rand::RngCore;

use super::{
    clock::instant, handicap::Handicapped, requests::Requests, traffic::prompt_blocks, world::Members,
};
use crate::{
    affinity::{AffinityConfig, Pipeline},
    domain::{
        Bounds, CountSource, Endpoint, InstanceView, Named, Needs, Now, PromptCount, Query, Snapshot,
        Timestamp, Tradeoff,
    },
    lab::{Item, LabError, PredictorChoice, RouterChoice, Scenario},
    latency::{Estimator, EstimatorSetup, LatencyConfig, estimator},
    policy::PolicyConfig,
    pool::{Breaker, NoSink, Pool, PoolConfig},
    predict::{ModelPrediction, PredictionSource, Predictor},
    router::{Attempt, Described, Parts, RouteError, Routed, Router, RouterConfig, Stage, StageObserver},
};

/// Counts the estimates of decisions.
#[derive(Debug, Default)]
struct Estimates(Cell<u64>);

impl StageObserver for Estimates {
    fn enter(&self, stage: Stage) {
        if stage == Stage::Estimate {
            self.0.set(self.0.get() + 1);
        }
    }

    fn leave(&self, _stage: Stage) {}
}

/// One router.
pub(super) struct Mouth {
    router: Router,
    pool: Arc<Pool>,
    predictor: PredictorChoice,
    tradeoff: Tradeoff,
    estimates: Estimates,
    /// Decisions made.
    pub(super) decisions: u64,
    /// Which snapshot of each instance its pool took last, by number.
    taken: Vec<u64>,
}

/// A try at one request.
pub(super) struct Try<'a> {
    /// The request's number.
    pub(super) request: usize,
    /// Which attempt, from 1.
    pub(super) number: u32,
    /// Instances that failed it.
    pub(super) exclude: &'a [usize],
}

impl Mouth {
    /// Puts a router together as a server does.
    pub(super) fn new(
        scenario: &Scenario,
        choice: &RouterChoice,
        members: &Members,
        predictor: Arc<Predictor>,
    ) -> Result<Self, LabError> {
        let pool = Pool::new(members.models.clone(), members.specs.clone(), PoolConfig::default());
        let pool = Arc::new(pool.map_err(|source| LabError::Invalid {
            place: scenario.name.clone(),
            key: String::from("pool"),
            rule: source.to_string(),
        })?);
        let lambda_per_usd = choice.lambda_per_usd.unwrap_or(scenario.lambda_per_usd);
        let delta_per_s = choice.delta_per_s.unwrap_or(scenario.delta_per_s);
        let policy =
            PolicyConfig { name: choice.policy.name.clone(), options: choice.policy.options.clone() };
        let parts = Parts {
            pool: Arc::clone(&pool),
            policy: policy.build()?,
            affinity: affinity(scenario)?,
            predictor: Arc::new(ArcSwap::from(predictor)),
            estimator: Arc::from(chosen_estimator(scenario, choice, members)?),
        };
        let config = RouterConfig { policy, lambda_per_usd, delta_per_s, ..RouterConfig::default() };
        Ok(Self {
            router: Router::new(parts, config),
            taken: vec![0; pool.len()],
            pool,
            predictor: choice.predictor.clone().unwrap_or_else(|| scenario.predictor.clone()),
            tradeoff: Tradeoff { lambda_per_usd, delta_per_s },
            estimates: Estimates::default(),
            decisions: 0,
        })
    }

    /// Returns its pool.
    pub(super) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Notes that an instance began to answer. As at the gateway that closes an open breaker, but makes up for no
    /// failure before it: a whole answer does.
    pub(super) fn began(&self, i: usize, now: Timestamp) {
        if self.pool.breaker(i, now).is_some_and(|breaker| breaker != Breaker::Closed) {
            self.pool.report_success(i);
        }
    }

    /// Returns how many estimates its decisions took.
    pub(super) fn estimates(&self) -> u64 {
        self.estimates.0.get()
    }

    /// Takes snapshot number `number` of instance `i`, unless it has.
    pub(super) fn take(
        &mut self,
        i: usize,
        number: u64,
        snapshot: impl FnOnce() -> Snapshot,
        now: Timestamp,
    ) {
        if self.taken[i] < number {
            self.taken[i] = number;
            // One that is too old to use is refused, and the ledger serves in its place, as it would live.
            let _ = self.pool.publish(i, snapshot(), now);
        }
    }

    /// Describes a request as the gateway would.
    pub(super) fn describe(&self, item: &Item, number: usize, requests: &Requests) -> Described {
        let query = Query {
            id: format!("q{number}"),
            arrived: instant(requests.arrived_us(number)),
            tenant: None,
            priority: 0,
            adapter: None,
            endpoint: Endpoint::Chat,
            named: Named::Virtual,
            requested_model: String::from("auto"),
            needs: Needs::default(),
            streamed: true,
            max_output_tokens: item.max_output_tokens,
            choices: 1,
            ttft_target: requests.target(number),
            tpot_target: None,
            bounds: Bounds::default(),
            tradeoff: self.tradeoff,
            prompts: vec![
                PromptCount::one(item.prompt_tokens, CountSource::Tokenizer);
                self.pool.models().len()
            ],
            prefix: prompt_blocks(item),
        };
        let given = (self.predictor == PredictorChoice::Oracle).then(|| truths(item));
        Described { query, features: item.features.clone(), given }
    }

    /// Decides and reserves.
    pub(super) fn route(
        &mut self,
        described: &Described,
        attempt: &Try<'_>,
        now: &Arc<dyn Now>,
        rng: &mut dyn RngCore,
    ) -> Result<Routed, RouteError> {
        self.decisions += 1;
        let id = attempt_id(attempt.request, attempt.number);
        let attempt =
            Attempt { id, exclude: attempt.exclude, number: attempt.number, sink: Arc::new(NoSink) };
        self.router.route(described, attempt, now, rng, &self.estimates)
    }

    /// Views every instance, for estimates beside the decision's.
    pub(super) fn views(&self, now: Timestamp) -> Vec<InstanceView> {
        (0..self.pool.len()).map(|i| self.pool.view(i, now)).collect()
    }
}

/// Names an attempt upstream.
pub(super) fn attempt_id(request: usize, number: u32) -> String {
    format!("{request}.{number}")
}

/// Returns the request and the attempt that an id names.
pub(super) fn parse_attempt_id(id: &str) -> Option<(usize, u32)> {
    let (request, number) = id.split_once('.')?;
    Some((request.parse().ok()?, number.parse().ok()?))
}

fn truths(item: &Item) -> Arc<[ModelPrediction]> {
    let truth = |answer: &crate::lab::Answer| ModelPrediction {
        accuracy: answer.score,
        output_tokens: Some(f64::from(answer.output_tokens)),
        source: PredictionSource::Prior,
        output_tokens_source: PredictionSource::Prior,
    };
    item.answers.iter().map(truth).collect()
}

fn affinity(scenario: &Scenario) -> Result<Pipeline, LabError> {
    Pipeline::from_config(&AffinityConfig::default()).map_err(|source| LabError::Invalid {
        place: scenario.name.clone(),
        key: String::from("affinity"),
        rule: source.to_string(),
    })
}

fn chosen_estimator(
    scenario: &Scenario,
    choice: &RouterChoice,
    members: &Members,
) -> Result<Box<dyn Estimator>, LabError> {
    let setup = EstimatorSetup {
        config: LatencyConfig::default(),
        parameters_b: members.models.iter().map(|model| model.parameters_b).collect(),
    };
    let entry = estimator(&choice.estimator).map_err(|source| LabError::Invalid {
        place: scenario.name.clone(),
        key: format!("routers.{}.estimator", choice.label),
        rule: source.to_string(),
    })?;
    let inner = (entry.construct)(&setup);
    let rule = scenario.snapshots;
    let whole = rule.roll_forward && rule.ledger;
    Ok(if whole { inner } else { Box::new(Handicapped { inner, rule }) })
}
