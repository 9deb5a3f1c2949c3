//! From a scenario to a resident set: checks, defaults and the order of arrival.
//!
//! Slots follow the order of arrival: running, waiting, those beyond, then the arrivals by time.

use std::{borrow::Cow, collections::HashMap};

use super::{MAX_BEYOND, Place, Scenario, StateError};
use crate::{
    domain::snapshot::Resident,
    engine::{
        ATTOSECONDS_PER_US, BatchScheduler, BatchTime, BatchWork, BlockCount, BlockCounts, Crowd,
        EngineState, Request, RequestStatus, SchedulerConfig, Slot, scheduler,
    },
};

/// Who a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A running resident, by its place in the snapshot.
    Running(usize),
    /// A listed waiting resident, by its place in the snapshot.
    Waiting(usize),
    /// A waiting request past the listed ones.
    Beyond(usize),
    /// A dispatched request, by its place in the scenario.
    Dispatched(usize),
    /// The query.
    Query,
}

impl Name {
    /// Returns the id it has in a trace. A resident called `query` or `beyond0`, as a trace calls the query
    /// and the first unlisted request, has its place added: `query@snapshot.running[0]`.
    #[must_use]
    pub fn id<'a>(self, scenario: &Scenario<'a>) -> Cow<'a, str> {
        match self {
            Self::Running(i) => told_apart(&scenario.snapshot.running[i].id, Place::Running(i)),
            Self::Waiting(i) => told_apart(&scenario.snapshot.waiting[i].id, Place::Waiting(i)),
            Self::Beyond(i) => Cow::Owned(format!("{BEYOND}{i}")),
            Self::Dispatched(i) => told_apart(&scenario.dispatched[i].id, Place::Dispatched(i)),
            Self::Query => Cow::Borrowed(QUERY),
        }
    }
}

/// The query's id in a trace.
const QUERY: &str = "query";

/// What the ids of unlisted requests start with in a trace; a number follows.
const BEYOND: &str = "beyond";

/// Returns an id as it is, or with its place where it reads like one that a trace gives by itself.
fn told_apart(id: &str, place: Place) -> Cow<'_, str> {
    let numbered = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match id == QUERY || id.strip_prefix(BEYOND).is_some_and(numbered) {
        true => Cow::Owned(format!("{id}@{place}")),
        false => Cow::Borrowed(id),
    }
}

/// Who the slots are. Those past the laid-out ones are the unlisted requests after the first.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<Name>);

impl Names {
    /// Returns who a slot is.
    #[must_use]
    pub fn name(&self, slot: Slot) -> Name {
        self.0.get(slot).copied().unwrap_or(Name::Beyond(slot + 1 - self.0.len().min(slot + 1)))
    }
}

/// The batch running at the capture; its members' computed tokens count it already.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    /// When it started, attoseconds from the capture.
    pub(super) started: i128,
    /// What it does.
    pub(super) work: BatchWork,
    /// Members that emit at its end.
    pub(super) emitting: Vec<Slot>,
}

/// A checked state, ready to run.
pub struct Start {
    pub(super) state: EngineState<BlockCounts>,
    pub(super) scheduler: Box<dyn BatchScheduler<BlockCounts>>,
    pub(super) batch_time: BatchTime,
    pub(super) flying: Option<Flying>,
    /// Arrivals by time, attoseconds from the capture.
    pub(super) arrivals: Vec<(i128, Slot)>,
    pub(super) query: Slot,
    names: Names,
}

impl Start {
    /// Checks a scenario and lays its residents out.
    ///
    /// # Errors
    /// The first rule of `bear.snapshot.v1` or of the replay that the scenario breaks.
    pub fn new(scenario: &Scenario<'_>) -> Result<Self, StateError> {
        let snapshot = scenario.snapshot;
        let config = SchedulerConfig::try_from(&snapshot.engine)?;
        let scheduler = scheduler(&snapshot.engine.scheduler)?;
        let mut layout = Layout::new(config, scenario);
        let mut places = HashMap::with_capacity(snapshot.running.len() + snapshot.waiting.len());
        for (i, resident) in snapshot.running.iter().enumerate() {
            layout.running(i, resident)?;
            unique(&mut places, resident, Place::Running(i))?;
        }
        for (i, resident) in snapshot.waiting.iter().enumerate() {
            layout.waiting(i, resident)?;
            unique(&mut places, resident, Place::Waiting(i))?;
        }
        layout.beyond()?;
        layout.arrivals(&places)?;
        let flying = layout.flying(&places)?;
        let Layout { state, names, arrivals, query, .. } = layout;
        Ok(Self {
            scheduler: (scheduler.counted)(&config, snapshot.scheduler_state.as_ref())?,
            state,
            batch_time: scenario.batch_time,
            flying,
            arrivals,
            query,
            names: Names(names),
        })
    }

    /// Returns who the slots are.
    #[must_use]
    pub const fn names(&self) -> &Names {
        &self.names
    }
}

/// Notes where an id stands; a second place is an error.
fn unique<'a>(
    places: &mut HashMap<&'a str, Place>,
    resident: &'a Resident,
    place: Place,
) -> Result<(), StateError> {
    match places.insert(&resident.id, place.clone()) {
        None => Ok(()),
        Some(_) => Err(StateError::DuplicateId { place, id: resident.id.clone() }),
    }
}

/// A start under construction.
struct Layout<'a> {
    scenario: &'a Scenario<'a>,
    state: EngineState<BlockCounts>,
    names: Vec<Name>,
    /// Unlisted requests that arrived but have no slot yet.
    unlaid: u64,
    arrivals: Vec<(i128, Slot)>,
    query: Slot,
}

impl<'a> Layout<'a> {
    fn new(config: SchedulerConfig, scenario: &'a Scenario<'a>) -> Self {
        let kv = BlockCounts::new(config, scenario.snapshot.free_kv_blocks);
        let (state, arrivals) =
            (EngineState::new(config, kv), Vec::with_capacity(scenario.dispatched.len() + 1));
        Self { scenario, state, names: Vec::new(), unlaid: 0, arrivals, query: 0 }
    }

    fn push(&mut self, name: Name, request: Request, count: BlockCount) -> Slot {
        let slot = self.state.requests.len();
        self.state.requests.push(Request { arrival: slot as u64 + self.unlaid, ..request });
        self.state.kv.push(count);
        self.names.push(name);
        slot
    }

    fn running(&mut self, i: usize, resident: &Resident) -> Result<(), StateError> {
        let mut request = self.resident(Place::Running(i), resident)?;
        request.status = RequestStatus::Running;
        request.num_computed_tokens = resident.computed_tokens;
        let num_tokens = request.num_tokens();
        if resident.computed_tokens > num_tokens {
            return Err(StateError::ComputedBeyondKnown {
                place: Place::Running(i),
                id: resident.id.clone(),
                computed_tokens: resident.computed_tokens,
                num_tokens,
            });
        }
        let in_flight = &self.scenario.snapshot.in_flight;
        if resident.computed_tokens == num_tokens
            && !in_flight.as_ref().is_some_and(|batch| batch.tokens.contains_key(&resident.id))
        {
            request.num_computed_tokens -= 1;
        }
        let held = resident.kv_blocks;
        let exclusive = resident.kv_blocks_exclusive.unwrap_or(held);
        let slot =
            self.push(Name::Running(i), request, BlockCount { held, exclusive, ..BlockCount::default() });
        self.state.running.push(slot);
        Ok(())
    }

    fn waiting(&mut self, i: usize, resident: &Resident) -> Result<(), StateError> {
        let request = self.resident(Place::Waiting(i), resident)?;
        let count = cached(resident.cached_tokens, resident.cached_blocks_in_use);
        let slot = self.push(Name::Waiting(i), request, count);
        self.state.waiting.push_back(slot);
        Ok(())
    }

    /// Returns a listed resident as it stands in the queue, nothing computed.
    fn resident(&self, place: Place, resident: &Resident) -> Result<Request, StateError> {
        let known = u64::from(resident.prompt_tokens) + u64::from(resident.output_tokens);
        self.check_size(&place, &resident.id, resident.prompt_tokens, known)?;
        let predicted = self.scenario.predicted_remaining.get(&resident.id).copied();
        let to_cap = || resident.max_tokens.map(|most| most.saturating_sub(resident.output_tokens));
        let Some(remaining) = predicted.or_else(to_cap) else {
            return Err(StateError::NoLength { place, id: resident.id.clone() });
        };
        let mut request = fresh(resident.prompt_tokens, remaining, resident.priority);
        request.num_output_tokens = resident.output_tokens;
        Ok(request)
    }

    fn check_size(&self, place: &Place, id: &str, prompt: u32, known: u64) -> Result<(), StateError> {
        if prompt == 0 {
            return Err(StateError::EmptyPrompt { place: place.clone(), id: id.to_owned() });
        }
        let max_model_len = self.state.config.max_model_len;
        if known >= u64::from(max_model_len) {
            return Err(StateError::TooLong {
                place: place.clone(),
                id: id.to_owned(),
                num_tokens: known,
                max_model_len,
            });
        }
        Ok(())
    }

    /// Lays out the unlisted requests as a crowd: alike in prompt (their tokens shared evenly, rounded up)
    /// and in length (the mean of the listed).
    fn beyond(&mut self) -> Result<(), StateError> {
        let beyond = self.scenario.snapshot.waiting_beyond;
        let requests = beyond.requests;
        if requests == 0 {
            return Ok(());
        }
        if requests > MAX_BEYOND {
            return Err(StateError::TooManyBeyond { requests, most: MAX_BEYOND });
        }
        let tokens = beyond.prefill_tokens.div_ceil(u64::from(requests));
        let prompt = u32::try_from(tokens).unwrap_or(u32::MAX);
        self.check_size(&Place::WaitingBeyond, "beyond0", prompt, tokens)?;
        let waiting = self.mean_remaining(self.state.waiting.iter().copied());
        let mean = waiting.or_else(|| self.mean_remaining(self.state.running.iter().copied()));
        let Some(remaining) = mean else { return Err(StateError::NoMeanLength { requests }) };
        let front = self.push(Name::Beyond(0), fresh(prompt, remaining, 0), BlockCount::default());
        self.state.waiting.push_back(front);
        self.state.crowd = Crowd { front, behind: requests - 1 };
        self.unlaid = u64::from(requests - 1);
        Ok(())
    }

    /// Returns the rounded-up mean of R, `None` of nobody.
    fn mean_remaining(&self, slots: impl ExactSizeIterator<Item = Slot>) -> Option<u32> {
        let count = slots.len() as u64;
        let sum: u64 = slots.map(|slot| u64::from(self.state.requests[slot].num_remaining_tokens)).sum();
        (count > 0).then(|| sum.div_ceil(count) as u32)
    }

    /// Lays out who is yet to come, earliest first; on a tie the query is last and the others keep the
    /// order they were sent in.
    fn arrivals(&mut self, places: &HashMap<&str, Place>) -> Result<(), StateError> {
        let Scenario { dispatched, query, now, .. } = *self.scenario;
        let captured = self.scenario.snapshot.captured_unix_us;
        let offset =
            |at: crate::domain::Timestamp| i128::from(at.us_since(captured).max(0)) * ATTOSECONDS_PER_US;
        let mut order = Vec::with_capacity(dispatched.len() + 1);
        for (i, request) in dispatched.iter().enumerate() {
            if places.contains_key(request.id.as_str()) {
                continue;
            }
            let known = u64::from(request.prompt_tokens);
            self.check_size(&Place::Dispatched(i), &request.id, request.prompt_tokens, known)?;
            order.push((offset(request.at_unix_us), Name::Dispatched(i)));
        }
        self.check_size(&Place::Query, "query", query.prompt_tokens, u64::from(query.prompt_tokens))?;
        order.push((offset(now), Name::Query));
        order.sort_by_key(|&(at, _)| at);
        for (at, name) in order {
            let (request, count) = match name {
                Name::Dispatched(i) => {
                    let d = &dispatched[i];
                    let request = fresh(d.prompt_tokens, d.output_tokens, d.priority);
                    (request, cached(d.cached_tokens, d.cached_blocks_in_use))
                }
                _ => {
                    let request = fresh(query.prompt_tokens, query.output_tokens, query.priority);
                    (request, cached(query.cached_tokens, query.cached_blocks_in_use))
                }
            };
            let slot = self.push(name, request, count);
            if name == Name::Query {
                self.query = slot;
            }
            self.arrivals.push((at, slot));
        }
        Ok(())
    }

    /// Returns the batch in flight; ids that are not running are ignored.
    fn flying(&self, places: &HashMap<&str, Place>) -> Result<Option<Flying>, StateError> {
        let Some(in_flight) = &self.scenario.snapshot.in_flight else { return Ok(None) };
        let since = in_flight.started_unix_us.us_since(self.scenario.snapshot.captured_unix_us);
        let mut flying = Flying {
            // A batch that runs at the capture did not start after it.
            started: i128::from(since.min(0)) * ATTOSECONDS_PER_US,
            work: BatchWork::default(),
            emitting: Vec::new(),
        };
        for (id, &tokens) in &in_flight.tokens {
            let Some(&Place::Running(slot)) = places.get(id.as_str()) else { continue };
            let mut request = self.state.requests[slot];
            let Some(before) = request.num_computed_tokens.checked_sub(tokens) else {
                return Err(StateError::InFlightBeyondComputed {
                    id: id.clone(),
                    tokens,
                    computed_tokens: request.num_computed_tokens,
                });
            };
            let emits = request.num_computed_tokens == request.num_tokens();
            request.num_computed_tokens = before;
            flying.work.add(tokens, before, request.decodes(), emits);
            if emits {
                flying.emitting.push(slot);
            }
        }
        Ok(Some(flying))
    }
}

/// Returns a request that nothing was computed of.
fn fresh(prompt_tokens: u32, remaining_tokens: u32, priority: i32) -> Request {
    Request {
        num_prompt_tokens: prompt_tokens,
        num_output_tokens: 0,
        num_computed_tokens: 0,
        num_remaining_tokens: remaining_tokens.max(1),
        priority,
        arrival: 0,
        status: RequestStatus::Waiting,
    }
}

fn cached(cached_tokens: u32, cached_blocks_in_use: u32) -> BlockCount {
    BlockCount { cached_tokens, cached_blocks_in_use, ..BlockCount::default() }
}
