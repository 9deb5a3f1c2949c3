//! The pool: every instance's live state, read by decisions and written by reservations and sources.

use std::{collections::HashSet, sync::Arc};

use super::{
    Breaker, PoolConfig, PoolError, Reservation, SettleSink, SourceStatus,
    ledger::Sent,
    lengths::Lengths,
    plausible,
    slot::{Context, Slot},
};
use crate::domain::{
    InstanceSpec, InstanceView, Load, ModelIndex, ModelSpec, Now, QueryLoad, Snapshot, Timestamp,
};

/// The instances and models a router routes over.
#[derive(Debug)]
pub struct Pool {
    models: Vec<ModelSpec>,
    slots: Vec<Slot>,
    lengths: Vec<Lengths>,
    config: PoolConfig,
}

/// What a reservation is for.
#[derive(Clone, Debug)]
pub struct ReserveRequest {
    /// The instance's position.
    pub instance: usize,
    /// The id sent upstream.
    pub attempt_id: String,
    /// When the request was complete at the router.
    pub arrived: Timestamp,
    /// The work of one answer on the instance, the predicted length included.
    pub load: QueryLoad,
    /// The client's cap on output tokens.
    pub max_output_tokens: Option<u32>,
    /// Whether the answer is streamed; only then a TTFT can be observed.
    pub streamed: bool,
    /// The answers asked for (`n`): as many residents.
    pub choices: u32,
    /// Whether the lengths of its answers tell of the model's: one prompt of a chat or a completion.
    pub typical: bool,
}

impl Pool {
    /// Makes a pool without any live state.
    ///
    /// # Errors
    /// [`PoolError::UnknownModel`], [`PoolError::Duplicate`], [`PoolError::Config`].
    pub fn new(
        models: Vec<ModelSpec>,
        instances: Vec<InstanceSpec>,
        config: PoolConfig,
    ) -> Result<Self, PoolError> {
        config.check()?;
        no_duplicates("model", models.iter().map(|model| model.id.as_str()))?;
        no_duplicates("instance", instances.iter().map(|instance| instance.id.as_str()))?;
        for instance in &instances {
            if instance.model.0 >= models.len() {
                return Err(PoolError::UnknownModel {
                    instance: instance.id.clone(),
                    model: instance.model.0,
                    models: models.len(),
                });
            }
        }
        let lengths = models.iter().map(|_| Lengths::default()).collect();
        Ok(Self { models, slots: instances.into_iter().map(Slot::new).collect(), lengths, config })
    }

    /// Returns the models in pool order.
    #[must_use]
    pub fn models(&self) -> &[ModelSpec] {
        &self.models
    }

    /// Returns the position of the model of that name.
    #[must_use]
    pub fn model_index(&self, name: &str) -> Option<ModelIndex> {
        self.models.iter().position(|model| model.id.as_str() == name).map(ModelIndex)
    }

    /// Returns how many instances there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are no instances.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns instance `i` as configured.
    ///
    /// # Panics
    /// Where `i` is not below [`Pool::len`].
    #[must_use]
    pub fn spec(&self, i: usize) -> &Arc<InstanceSpec> {
        &self.slots[i].spec
    }

    /// Returns the position of the instance of that name.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.spec.id.as_str() == id)
    }

    /// Returns what is known of instance `i` now. Copies no residents.
    ///
    /// # Panics
    /// Where `i` is not below [`Pool::len`].
    #[must_use]
    pub fn view(&self, i: usize, now: Timestamp) -> InstanceView {
        let slot = &self.slots[i];
        let (basis, resident_requests) = self.with_context(slot, now, |context| slot.basis(context));
        InstanceView {
            spec: Arc::clone(&slot.spec),
            basis: Some(basis),
            resident_requests,
            load: slot.load(),
            usable: slot.health.usable(now),
        }
    }

    /// Returns whether instance `i` may be chosen now; the reason why not otherwise.
    ///
    /// # Errors
    /// The reason, as the decision table shows it.
    pub fn usable(&self, i: usize, now: Timestamp) -> Result<(), &'static str> {
        self.slots.get(i).map_or(Err("no such instance"), |slot| slot.health.usable(now))
    }

    /// Returns the state of the breaker of instance `i`; absent: no such instance.
    #[must_use]
    pub fn breaker(&self, i: usize, now: Timestamp) -> Option<Breaker> {
        self.slots.get(i).map(|slot| slot.health.breaker(now))
    }

    /// Takes a snapshot of instance `i` from its source; one older than the last is let pass unused.
    ///
    /// # Errors
    /// [`PoolError::Implausible`], [`PoolError::NoInstance`]. The state at hand stays as it is.
    pub fn publish(&self, i: usize, snapshot: Snapshot, received: Timestamp) -> Result<(), PoolError> {
        let slot = self.slot(i)?;
        if let Err(why) = plausible::check(&snapshot, &slot.spec, received, &self.config) {
            slot.refuse(why.label());
            return Err(PoolError::Implausible { instance: slot.spec.id.clone(), seq: snapshot.seq, why });
        }
        self.with_context(slot, received, |context| slot.accept(snapshot, context));
        Ok(())
    }

    /// Notes that the source of instance `i` says nothing is coming.
    ///
    /// The last snapshot goes on serving until it is stale: rolled forward with the ledger it still
    /// knows more than the ledger alone.
    pub fn source_lost(&self, i: usize, _now: Timestamp) {
        if let Some(slot) = self.slots.get(i) {
            slot.lose_source();
        }
    }

    /// Returns how the snapshot source of instance `i` fares.
    #[must_use]
    pub fn source_status(&self, i: usize) -> Option<SourceStatus> {
        self.slots.get(i).map(Slot::source_status)
    }

    /// Enters a request into its instance's ledger before it is sent.
    ///
    /// # Panics
    /// Where `request.instance` is not below [`Pool::len`].
    #[must_use]
    pub fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
        now: Arc<dyn Now>,
        sink: Arc<dyn SettleSink>,
    ) -> Reservation {
        let slot = &self.slots[request.instance];
        let dispatched = now.now();
        let sent = Sent {
            expected: dispatched.after_s(slot.spec.overhead.ingress_s),
            load: request.load,
            max_output_tokens: request.max_output_tokens,
            streamed: request.streamed,
            choices: request.choices,
        };
        slot.health.dispatched(dispatched, &self.config);
        let entry = slot.enter(request.attempt_id.as_str().into(), sent);
        Reservation::new(Arc::clone(self), entry, request, now, sink)
    }

    /// Counts a connect error, time-out or 5xx of instance `i`.
    pub fn report_connect_failure(&self, i: usize, now: Timestamp) {
        if let Some(slot) = self.slots.get(i) {
            slot.health.failed(now, &self.config);
        }
    }

    /// Notes that instance `i` answered: its breaker closes.
    pub fn report_success(&self, i: usize) {
        if let Some(slot) = self.slots.get(i) {
            slot.health.succeeded();
        }
    }

    /// Takes instance `i` out of new decisions, or back in.
    pub fn set_draining(&self, i: usize, draining: bool) {
        if let Some(slot) = self.slots.get(i) {
            slot.health.set_draining(draining);
        }
    }

    /// Returns what this router has in flight on instance `i`; nothing where there is no such instance.
    #[must_use]
    pub fn load(&self, i: usize) -> Load {
        self.slots.get(i).map(Slot::load).unwrap_or_default()
    }

    /// Returns the output tokens to expect of a model where no prediction is at hand: the mean of its
    /// answers to prompts of that size, else its prior, else the configured assumption.
    #[must_use]
    pub fn expected_output_tokens(&self, model: ModelIndex, prompt_tokens: u32) -> f64 {
        let observed = self.lengths.get(model.0).and_then(|lengths| lengths.mean(prompt_tokens));
        let prior = || self.models.get(model.0).and_then(|model| model.prior_output_tokens);
        observed.or_else(prior).unwrap_or(f64::from(self.config.assumed_output_tokens)).max(1.0)
    }

    fn with_context<T>(&self, slot: &Slot, now: Timestamp, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let model = slot.spec.model;
        let expected_tokens = |prompt_tokens| self.expected_output_tokens(model, prompt_tokens);
        work(&Context {
            config: &self.config,
            model: &self.models[model.0],
            expected_tokens: &expected_tokens,
            now,
        })
    }

    pub(super) fn slot(&self, position: usize) -> Result<&Slot, PoolError> {
        self.slots.get(position).ok_or(PoolError::NoInstance { position, len: self.slots.len() })
    }

    pub(super) fn observe_length(&self, model: ModelIndex, prompt_tokens: u32, output_tokens: u32) {
        if let Some(lengths) = self.lengths.get(model.0) {
            lengths.observe(prompt_tokens, output_tokens);
        }
    }
}

fn no_duplicates<'a>(kind: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), PoolError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(PoolError::Duplicate { kind, name: name.to_owned() });
        }
    }
    Ok(())
}
