//! The router: eligible, predict, observe, estimate, decide, affinity, reserve.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rand::RngCore;

use super::{
    Attempt, Described, Parts, RouteError, Routed, RouterConfig, Silent, Stage, StageObserver,
    candidates::Eligible,
    eligible,
    predictions::{self, ModelView},
    stage::staged,
    table::Row,
};
use crate::{
    affinity::Pipeline,
    domain::{
        Candidate, Decision, Endpoint, Horizon, Ineligible, InstanceView, ModelIndex, ModelSpec, Named, Now,
        Outcome, Placement, PromptCount, Query, Reason, Timestamp,
    },
    latency::Estimator,
    policy::{self, Candidates, Choice, RoutingPolicy},
    pool::{Pool, Reservation, ReserveRequest, SettleSink},
    predict::Predictor,
};

/// Decides where queries go and reserves their place.
pub struct Router {
    pool: Arc<Pool>,
    policy: Arc<dyn RoutingPolicy>,
    affinity: Pipeline,
    predictor: Arc<ArcSwap<Predictor>>,
    estimator: Arc<dyn Estimator>,
    config: RouterConfig,
}

impl Router {
    /// Puts a router together.
    #[must_use]
    pub fn new(parts: Parts, config: RouterConfig) -> Self {
        Self {
            pool: parts.pool,
            policy: Arc::from(parts.policy),
            affinity: parts.affinity,
            predictor: parts.predictor,
            estimator: parts.estimator,
            config,
        }
    }

    /// Returns the pool it routes over.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns its `routing` section.
    #[must_use]
    pub const fn config(&self) -> &RouterConfig {
        &self.config
    }

    /// Decides for a query and reserves its place on the chosen instance.
    ///
    /// # Errors
    /// [`RouteError`] with one row an instance, where nothing may or can serve it.
    pub fn route(
        &self,
        described: &Described,
        attempt: Attempt<'_>,
        now: &Arc<dyn Now>,
        rng: &mut dyn RngCore,
        observer: &dyn StageObserver,
    ) -> Result<Routed, RouteError> {
        let query = &described.query;
        let at = now.now();
        let unfit = staged(observer, Stage::Eligible, || self.unfit(query));
        let predictor = self.predictor.load_full();
        let models =
            staged(observer, Stage::Predict, || predictions::predict(&self.pool, &predictor, described));
        let rows =
            staged(observer, Stage::Observe, || self.observe(query, (&unfit, &models), attempt.exclude, at));
        let eligible = self.eligible(query, &rows, at, observer)?;
        let choice = staged(observer, Stage::Decide, || self.decide(query, &eligible, rng))?;
        // The chosen instance's TTFT is shown even where the policy did not ask for it.
        eligible.estimate(choice.instance, Horizon::FirstToken);
        let mut decision = self.table(&eligible, &choice, &predictor);
        decision.attempt = attempt.number;
        if attempt.number > 1 {
            decision.reason = Reason::Retry;
        }
        let instance = eligible.positions[choice.instance];
        let reservation =
            staged(observer, Stage::Reserve, || self.reserve(query, &rows[instance], instance, attempt, now));
        Ok(Routed { decision, instance, reservation })
    }

    /// Decides for a query with every eligible instance estimated, and changes nothing.
    ///
    /// # Errors
    /// [`RouteError`] with one row an instance, where nothing may or can serve it.
    pub fn dry_run(
        &self,
        described: &Described,
        now: Timestamp,
        rng: &mut dyn RngCore,
    ) -> Result<Decision, RouteError> {
        let query = &described.query;
        let predictor = self.predictor.load_full();
        let models = predictions::predict(&self.pool, &predictor, described);
        let rows = self.observe(query, (&self.unfit(query), &models), &[], now);
        let eligible = self.eligible(query, &rows, now, &Silent)?;
        let choice = self.decide(query, &eligible, rng)?;
        for i in 0..eligible.len() {
            eligible.estimate(i, Horizon::FirstToken);
        }
        Ok(self.table(&eligible, &choice, &predictor))
    }

    /// Returns why each model may not serve the query, by what the model is.
    fn unfit(&self, query: &Query) -> Vec<Option<Ineligible>> {
        let models = self.pool.models().iter().enumerate();
        models
            .map(|(m, model)| {
                let prompt = predictions::prompt_count(query, ModelIndex(m));
                eligible::by_model(query, ModelIndex(m), model, prompt)
            })
            .collect()
    }

    /// Views every instance and joins what is known of its model: one row an instance, in pool order.
    fn observe(
        &self,
        query: &Query,
        (unfit, models): (&[Option<Ineligible>], &[ModelView]),
        exclude: &[usize],
        now: Timestamp,
    ) -> Vec<Row> {
        let row = |i: usize| {
            let view = self.pool.view(i, now);
            let m = view.spec.model.0;
            let prediction = predictions::price(query, &models[m], &view.spec);
            let ineligible = unfit[m]
                .clone()
                .or_else(|| eligible::by_engine(query, &view, models[m].prompt))
                .or_else(|| eligible::by_bounds(query, &prediction))
                .or_else(|| eligible::by_state(&view, exclude.contains(&i)));
            let most_tokens = longest_sequence(&self.pool.models()[m], &view);
            Row::new(view, models[m].within(most_tokens), prediction, ineligible)
        };
        (0..self.pool.len()).map(row).collect()
    }

    /// Gathers the rows that may be chosen.
    fn eligible<'a>(
        &'a self,
        query: &'a Query,
        rows: &'a [Row],
        now: Timestamp,
        observer: &'a dyn StageObserver,
    ) -> Result<Eligible<'a>, RouteError> {
        let positions: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].ineligible.is_none()).collect();
        if positions.is_empty() {
            return Err(none_usable(&self.pool, query, rows));
        }
        let (estimator, affinity) = (&*self.estimator, &self.affinity);
        let models = self.pool.models();
        Ok(Eligible { query, rows, models, positions, estimator, affinity, now, observer })
    }

    /// Lets the policy choose; a request that names a model goes to its replicas instead.
    fn decide(
        &self,
        query: &Query,
        eligible: &Eligible<'_>,
        rng: &mut dyn RngCore,
    ) -> Result<Choice, RouteError> {
        let choice = match query.named {
            Named::Model(_) => policy::pinned(query, eligible, rng),
            Named::Virtual => self.policy.choose(query, eligible, rng),
        };
        choice.ok_or_else(|| none_usable(&self.pool, query, eligible.rows))
    }

    /// Enters the choice into its instance's ledger and tells the policy.
    fn reserve(
        &self,
        query: &Query,
        row: &Row,
        instance: usize,
        attempt: Attempt<'_>,
        now: &Arc<dyn Now>,
    ) -> Reservation {
        let request = ReserveRequest {
            instance,
            attempt_id: attempt.id,
            arrived: query.arrived,
            load: row.model.load,
            max_output_tokens: query.max_output_tokens,
            streamed: query.streamed,
            choices: query.choices,
            typical: one_answered_prompt(query, row.model.prompt),
        };
        let sink = Observed { policy: Arc::clone(&self.policy), next: attempt.sink };
        let reservation = self.pool.reserve(request, Arc::clone(now), Arc::new(sink));
        self.policy.dispatched(query, &Placement::single(instance, query.adapter.clone()));
        reservation
    }

    /// Writes the decision as a table.
    fn table(&self, eligible: &Eligible<'_>, choice: &Choice, predictor: &Predictor) -> Decision {
        let query = eligible.query;
        let mut candidates = candidates(&self.pool, query, eligible.rows);
        for &i in &choice.interchangeable {
            candidates[eligible.positions[i]].interchangeable = true;
        }
        candidates[eligible.positions[choice.instance]].chosen = true;
        Decision {
            request_id: query.id.clone(),
            attempt: 1,
            requested_model: Some(query.requested_model.clone()),
            predictor_version: Some(predictor.version().to_owned()),
            policy: self.policy.name().to_owned(),
            reason: choice.reason,
            lambda_per_usd: query.tradeoff.lambda_per_usd,
            delta_per_s: query.tradeoff.delta_per_s,
            ttft_target_ms: query.ttft_target.map(|target| target.as_secs_f64() * 1e3),
            propensity: choice.propensity,
            believed_latency_s: self.policy.believed_latency_s(query, eligible, choice.instance),
            candidates,
        }
    }
}

/// Returns whether the query is one prompt of an endpoint that generates text.
const fn one_answered_prompt(query: &Query, prompt: PromptCount) -> bool {
    matches!(query.endpoint, Endpoint::Chat | Endpoint::Completions) && prompt.tokens == prompt.longest_tokens
}

/// Returns the most tokens that an instance takes in one sequence.
fn longest_sequence(model: &ModelSpec, view: &InstanceView) -> u32 {
    let of_engine = view.basis.as_ref().map(|basis| basis.snapshot.engine.max_model_len);
    of_engine.unwrap_or(model.max_model_len_tokens).min(model.max_model_len_tokens)
}

/// Tells the policy of an end, then whoever asked.
struct Observed {
    policy: Arc<dyn RoutingPolicy>,
    next: Arc<dyn SettleSink>,
}

impl SettleSink for Observed {
    fn settled(&self, outcome: &Outcome) {
        self.policy.observe(outcome);
        self.next.settled(outcome);
    }
}

fn candidates(pool: &Pool, query: &Query, rows: &[Row]) -> Vec<Candidate> {
    rows.iter().map(|row| row.candidate(query, &pool.models()[row.view.spec.model.0])).collect()
}

/// Tells a pool that could serve the query if it were up from one that never could.
fn none_usable(pool: &Pool, query: &Query, rows: &[Row]) -> RouteError {
    let rows_shown = candidates(pool, query, rows);
    if rows.iter().any(|row| matches!(row.ineligible, None | Some(Ineligible::Unusable { .. }))) {
        RouteError::NoneUsable(rows_shown)
    } else {
        RouteError::NoneEligible(rows_shown)
    }
}
