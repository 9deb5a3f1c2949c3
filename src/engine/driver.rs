//! One engine driven from outside, with hashed blocks: for the simulated engine and the lab.
//!
//! The caller owns time: it begins a batch, lets its duration pass, and ends it. With asynchronous
//! scheduling the batch behind the running one is formed when that one ends, but from the requests
//! that were there when it began, and before anything finished is released: what vLLM forms early,
//! without a second batch in the state.

use std::{collections::HashMap, sync::Arc};

use super::{
    Batch, BatchScheduler, BatchWork, BlockCache, EngineError, EngineState, KvBlocks, Origin, Request,
    RequestStatus, SchedulerConfig, Slot, scheduler,
};
use crate::domain::{Timestamp, snapshot::EngineParams};

/// A request as it reaches the engine.
#[derive(Clone, Debug)]
pub struct NewRequest {
    /// A fresh id.
    pub id: String,
    /// Prompt tokens, at least 1.
    pub prompt_tokens: u32,
    /// Output tokens it will truly produce, at least 1; known to the simulation only.
    pub output_tokens: u32,
    /// The client's cap, published in snapshots.
    pub max_tokens: Option<u32>,
    /// Smaller is sooner.
    pub priority: i32,
    /// Hashes of its full blocks, each chained to the one before: those of the prompt, and those that
    /// its output will fill where a later turn shall hit them.
    pub block_hashes: Arc<[u64]>,
}

/// One member of a begun batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchMember {
    /// The request.
    pub id: Arc<str>,
    /// k: its tokens in this batch.
    pub tokens: u32,
    /// c: its tokens computed before.
    pub context_tokens: u32,
    /// Whether it decodes; else it prefills.
    pub decodes: bool,
    /// Whether it emits a token at the end.
    pub emits: bool,
    /// Set where this batch admits it.
    pub admission: Option<Admission>,
}

/// How a request got its seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Tokens its prefix hit saved.
    pub cached_tokens: u32,
    /// Whether it had been preempted before.
    pub resumed: bool,
}

/// A batch that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchShape {
    /// Its members in scheduling order.
    pub members: Vec<BatchMember>,
    /// Requests preempted for it.
    pub preempted: Vec<Arc<str>>,
    /// The columns of eq. 12.
    pub work: BatchWork,
}

/// What the end of a batch brings, in member order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request emitted a token.
    Token {
        /// The request.
        id: Arc<str>,
        /// Its output tokens so far.
        output_tokens: u32,
    },
    /// It was its last one.
    Finished {
        /// The request.
        id: Arc<str>,
        /// Its output tokens.
        output_tokens: u32,
        /// Whether `max_model_len` ended it, not its own length.
        at_model_len: bool,
    },
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches ended.
    pub steps: u64,
    /// Tokens looked up in the prefix cache at first admissions.
    pub prefix_cache_queries: u64,
    /// Of these, tokens found.
    pub prefix_cache_hits: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Prompt tokens of first admissions.
    pub prompt_tokens: u64,
    /// Tokens emitted.
    pub generation_tokens: u64,
}

/// The batch that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) started: Timestamp,
    pub(super) batch: Batch,
}

/// What the driver keeps of a resident beside the scheduler's own fields.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) id: Arc<str>,
    pub(super) max_tokens: Option<u32>,
    pub(super) aborted: bool,
}

/// One engine with its residents and block cache.
pub struct Engine {
    pub(super) params: EngineParams,
    pub(super) scheduler: Box<dyn BatchScheduler<BlockCache>>,
    pub(super) state: EngineState<BlockCache>,
    pub(super) identities: Vec<Option<Identity>>,
    /// Requests that came after the running batch began, in order of arrival.
    pub(super) arrived: Vec<Slot>,
    pub(super) running: Option<Running>,
    pub(super) counters: Counters,
    by_id: HashMap<Arc<str>, Slot>,
    vacant: Vec<Slot>,
    spare: Batch,
    arrivals: u64,
    /// Whether the batch behind the last one is still to be formed from those then present.
    behind: bool,
}

impl Engine {
    /// Starts an engine with an empty block cache.
    ///
    /// # Errors
    /// Unknown scheduler or parameters under which no request of full length could run.
    pub fn with_block_cache(params: EngineParams) -> Result<Self, EngineError> {
        let config = SchedulerConfig::try_from(&params)?;
        let scheduler = (scheduler(&params.scheduler)?.cached)(&config, None)?;
        Ok(Self {
            params,
            scheduler,
            state: EngineState::new(config, BlockCache::new(config)),
            identities: Vec::new(),
            arrived: Vec::new(),
            running: None,
            counters: Counters::default(),
            by_id: HashMap::new(),
            vacant: Vec::new(),
            spare: Batch::default(),
            arrivals: 0,
            behind: false,
        })
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// An empty prompt, one that leaves no room for output, or an id that is already resident.
    pub fn add(&mut self, new: NewRequest) -> Result<(), EngineError> {
        if new.prompt_tokens == 0 {
            return Err(EngineError::EmptyPrompt { id: new.id });
        }
        let max_model_len = self.state.config.max_model_len;
        if new.prompt_tokens >= max_model_len {
            return Err(EngineError::TooLong { id: new.id, num_tokens: new.prompt_tokens, max_model_len });
        }
        if self.by_id.contains_key(new.id.as_str()) {
            return Err(EngineError::DuplicateId { id: new.id });
        }
        let request = Request {
            num_prompt_tokens: new.prompt_tokens,
            num_output_tokens: 0,
            num_computed_tokens: 0,
            num_remaining_tokens: new.output_tokens.max(1),
            priority: new.priority,
            arrival: self.arrivals,
            status: RequestStatus::Waiting,
        };
        self.arrivals += 1;
        let id: Arc<str> = new.id.into();
        let identity = Some(Identity { id: Arc::clone(&id), max_tokens: new.max_tokens, aborted: false });
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.state.requests[slot] = request;
                self.identities[slot] = identity;
                slot
            }
            None => {
                self.state.requests.push(request);
                self.identities.push(identity);
                self.state.requests.len() - 1
            }
        };
        self.state.kv.register(slot, new.block_hashes);
        self.by_id.insert(id, slot);
        self.arrived.push(slot);
        Ok(())
    }

    /// Takes a request out; returns whether it was resident. Outside the running batch its blocks are
    /// free at once; inside, it keeps seat and blocks as a finished one would and emits nothing more.
    pub fn abort(&mut self, id: &str) -> bool {
        let Some(slot) = self.by_id.remove(id) else { return false };
        let in_flight = self
            .running
            .as_ref()
            .is_some_and(|running| running.batch.members.iter().any(|member| member.slot == slot));
        if in_flight {
            if let Some(identity) = &mut self.identities[slot] {
                identity.aborted = true;
            }
            return true;
        }
        self.arrived.retain(|&other| other != slot);
        self.state.waiting.retain(|&other| other != slot);
        self.state.running.retain(|&other| other != slot);
        self.state.kv.release(slot);
        self.vacate(slot);
        true
    }

    /// Begins the next batch at `now`; `None` when one is running already or nothing can run.
    pub fn begin(&mut self, now: Timestamp) -> Option<BatchShape> {
        if self.running.is_some() {
            return None;
        }
        let mut batch = std::mem::take(&mut self.spare);
        let mut preempted = Vec::new();
        batch.clear();
        if std::mem::take(&mut self.behind) {
            // The batch formed behind the last one: before its finished are released and the new join.
            self.form(&mut batch, &mut preempted);
        }
        self.release_finished();
        self.state.waiting.extend(self.arrived.drain(..));
        // A fresh start; an empty formation that preempted is tried again.
        while batch.is_empty() {
            self.form(&mut batch, &mut preempted);
            if batch.preempted.is_empty() {
                break;
            }
        }
        if batch.is_empty() {
            self.spare = batch;
            return None;
        }
        let shape = self.shape(&batch, preempted);
        self.state.advance(&batch);
        self.behind = self.state.config.async_scheduling;
        self.running = Some(Running { started: now, batch });
        Some(shape)
    }

    /// Ends the running batch and returns what its members emitted; empty when none runs.
    pub fn end(&mut self) -> Vec<Event> {
        let Some(Running { batch, .. }) = self.running.take() else { return Vec::new() };
        self.counters.steps += 1;
        let mut events = Vec::new();
        for member in &batch.members {
            self.end_member(member.slot, member.emits, &mut events);
        }
        self.spare = batch;
        if !self.behind {
            self.release_finished();
        }
        events
    }

    fn end_member(&mut self, slot: Slot, emits: bool, events: &mut Vec<Event>) {
        let Some(Identity { id, aborted, .. }) = self.identities[slot].clone() else { return };
        if aborted {
            self.state.finish(slot);
            return;
        }
        if !emits {
            return;
        }
        let finished = self.state.emit(slot);
        let request = &self.state.requests[slot];
        let output_tokens = request.num_output_tokens;
        let at_model_len = request.num_remaining_tokens > 0;
        self.counters.generation_tokens += 1;
        events.push(Event::Token { id: Arc::clone(&id), output_tokens });
        if finished {
            self.by_id.remove(&id);
            events.push(Event::Finished { id, output_tokens, at_model_len });
        }
    }

    fn form(&mut self, batch: &mut Batch, preempted: &mut Vec<Arc<str>>) {
        self.scheduler.form(&mut self.state, batch);
        self.counters.preemptions += batch.preempted.len() as u64;
        preempted.extend(batch.preempted.iter().filter_map(|&slot| self.id(slot)));
    }

    fn shape(&mut self, batch: &Batch, preempted: Vec<Arc<str>>) -> BatchShape {
        let mut shape = BatchShape { members: Vec::new(), preempted, work: BatchWork::from(batch) };
        for member in &batch.members {
            let Some(id) = self.id(member.slot) else { continue };
            let admission = match member.origin {
                Origin::Running => None,
                origin => Some(Admission {
                    cached_tokens: member.num_computed_tokens,
                    resumed: origin == Origin::Resumed,
                }),
            };
            if member.origin == Origin::New {
                let num_tokens = u64::from(self.state.requests[member.slot].num_prompt_tokens);
                self.counters.prompt_tokens += num_tokens;
                if self.state.config.enable_prefix_caching {
                    self.counters.prefix_cache_queries += num_tokens;
                    self.counters.prefix_cache_hits += u64::from(member.num_computed_tokens);
                }
            }
            shape.members.push(BatchMember {
                id,
                tokens: member.num_scheduled_tokens,
                context_tokens: member.num_computed_tokens,
                decodes: member.decodes,
                emits: member.emits,
                admission,
            });
        }
        shape
    }

    fn id(&self, slot: Slot) -> Option<Arc<str>> {
        self.identities[slot].as_ref().map(|identity| Arc::clone(&identity.id))
    }

    fn release_finished(&mut self) {
        let mut released = Vec::new();
        self.state.release_finished(|slot| released.push(slot));
        for slot in released {
            self.vacate(slot);
        }
    }

    fn vacate(&mut self, slot: Slot) {
        self.identities[slot] = None;
        self.vacant.push(slot);
    }
}
