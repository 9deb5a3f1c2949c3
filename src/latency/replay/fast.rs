//! The replay that costs what happens, not how long it lasts: equal to the plain one on any input.
//!
//! The decoding lead of `running` moves as one ([`Decoders`]), and where a batch was all decodes and
//! nothing can change the next ones, they are passed over at once: their times are an arithmetic series
//! and their blocks are counted by phase.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Ended, Goal, Replayed, Scenario, Start, StateError, decoders::Decoders};
use crate::{
    domain::snapshot::QueuePolicy,
    engine::{Batch, BatchWork, DecodeRun, KvBlocks, RequestStatus},
};

/// Room that a replay works in; kept and refilled, so that replaying allocates nothing a step.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    batch: Batch,
    decoders: Decoders,
}

/// Scratch rooms at rest, for replays that run side by side.
#[derive(Debug, Default)]
pub struct Scratches(Mutex<Vec<Scratch>>);

impl Scratches {
    /// Lends a room to `replay`, a new one only where all others are in use.
    pub fn lend<T>(&self, replay: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = self.rest().pop().unwrap_or_default();
        let result = replay(&mut scratch);
        self.rest().push(scratch);
        result
    }

    fn rest(&self) -> MutexGuard<'_, Vec<Scratch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replays a scenario; what comes out is what [`super::plain`] gives.
///
/// # Errors
/// The scenario breaks a rule (see [`Start::new`]).
pub fn fast(scenario: &Scenario<'_>, goal: Goal, scratch: &mut Scratch) -> Result<Replayed, StateError> {
    Ok(Start::new(scenario)?.fast(goal, scratch))
}

impl Start {
    /// Runs from event to event.
    pub fn fast(self, goal: Goal, scratch: &mut Scratch) -> Replayed {
        let arrived = self.arrivals.iter().find(|&&(_, slot)| slot == self.query).map_or(0, |&(at, _)| at);
        scratch.decoders.reset(&self.state);
        let mut run = Run {
            start: self,
            goal,
            scratch,
            alike: false,
            joined: 0,
            began: 0,
            end: 0,
            steps: 0,
            scheduled: None,
            first_token: None,
        };
        let ended = run.drive().err().unwrap_or(Ended::Reached);
        run.settle_query();
        Replayed {
            ended,
            wait: run.scheduled.map(|at| at.saturating_sub(arrived)),
            ttft: run.first_token.map(|at| at.saturating_sub(arrived)),
            end: run.end.saturating_sub(arrived),
            output_tokens: run.start.state.requests[run.start.query].num_output_tokens,
            steps: run.steps,
        }
    }
}

/// A replay under way. Times are attoseconds from the capture.
struct Run<'s> {
    start: Start,
    goal: Goal,
    /// The batch formed last, without the lead, and the lead.
    scratch: &'s mut Scratch,
    /// Whether the batch formed last was all decodes with nobody finished among `running`, so that only an
    /// event makes the next one another.
    alike: bool,
    /// Arrivals that joined the queue.
    joined: usize,
    /// s: start of the batch that runs.
    began: i128,
    /// End of the batch that runs.
    end: i128,
    steps: u64,
    scheduled: Option<i128>,
    first_token: Option<i128>,
}

impl Run<'_> {
    /// Runs until the query has its token; otherwise returns why it never will.
    fn drive(&mut self) -> Result<(), Ended> {
        let flying = self.start.flying.take();
        for &slot in flying.iter().flat_map(|flying| &flying.emitting) {
            self.start.state.emit(slot);
        }
        self.scratch.decoders.absorb(&self.start.state);
        match flying {
            Some(flying) => {
                self.began = flying.started;
                self.end = self.began.saturating_add(self.start.batch_time.duration(&flying.work)).max(0);
            }
            None => self.fresh_start(0)?,
        }
        while !self.query_is_there() {
            if self.steps >= self.goal.step_limit {
                return Err(Ended::Limit);
            }
            if self.pass_over() {
                continue;
            }
            let formed_behind = self.start.state.config.async_scheduling && self.form_behind();
            self.start.state.release_finished(|_| ());
            self.scratch.decoders.released();
            match formed_behind {
                true => self.run(self.end),
                false => self.fresh_start(self.end)?,
            }
        }
        Ok(())
    }

    fn settle_query(&mut self) {
        self.scratch.decoders.settle(self.start.query, &mut self.start.state);
    }

    fn query_is_there(&mut self) -> bool {
        self.settle_query();
        let query = &self.start.state.requests[self.start.query];
        if query.num_output_tokens > 0 {
            self.first_token.get_or_insert(self.end);
        }
        query.num_output_tokens >= self.goal.output_tokens || query.is_finished()
    }

    /// Forms the next batch while this one runs, from those who were there when it began.
    fn form_behind(&mut self) -> bool {
        self.join(self.began);
        self.form()
    }

    /// Forms a batch with nothing in flight, at `at` or at the first later arrival that makes it possible,
    /// and runs it.
    fn fresh_start(&mut self, mut at: i128) -> Result<(), Ended> {
        loop {
            self.join(at);
            if self.form() {
                self.run(at);
                return Ok(());
            }
            if self.scratch.batch.preempted.is_empty() {
                at = self.start.arrivals.get(self.joined).ok_or(Ended::Unschedulable)?.0;
                continue;
            }
            self.steps += 1;
            if self.steps >= self.goal.step_limit {
                return Err(Ended::Limit);
            }
        }
    }

    /// Lets arrivals up to `at` join the back of the queue.
    fn join(&mut self, at: i128) {
        while let Some(&(_, slot)) =
            self.start.arrivals.get(self.joined).filter(|&&(arrives, _)| arrives <= at)
        {
            self.start.state.waiting.push_back(slot);
            self.joined += 1;
        }
    }

    /// Forms a batch behind the lead, or without one where somebody may be preempted. Returns whether it
    /// has members.
    fn form(&mut self) -> bool {
        let Scratch { batch, decoders } = &mut *self.scratch;
        let Start { state, scheduler, .. } = &mut self.start;
        let (lead, blocks) = (decoders.lead(), decoders.blocks(1));
        self.alike = false;
        if lead.requests > 0 && blocks <= u64::from(state.kv.free()) {
            let blocks = blocks as u32;
            state.kv.take_ahead(blocks);
            let lead_alone = lead.requests == state.running.len() || decoders.takes_all();
            let unfinished = state.num_finished() == 0;
            if scheduler.form_behind_lead(state, batch, lead) {
                self.alike = lead_alone && unfinished && batch.is_empty();
                return lead.tokens > 0 || !batch.is_empty();
            }
            state.kv.give_back(blocks);
        }
        decoders.disband(state);
        scheduler.form(state, batch);
        !batch.is_empty()
    }

    /// Runs the formed batch from `at` on and applies it.
    fn run(&mut self, at: i128) {
        let Scratch { batch, decoders } = &mut *self.scratch;
        let state = &mut self.start.state;
        let mut work = BatchWork::from(&*batch);
        decoders.add_to(&mut work);
        self.began = at;
        self.end = at.saturating_add(self.start.batch_time.duration(&work));
        self.steps += 1;
        if state.requests[self.start.query].status == RequestStatus::Running {
            self.scheduled.get_or_insert(at);
        }
        state.advance(batch);
        for member in batch.members.iter().filter(|member| member.emits) {
            state.emit(member.slot);
        }
        decoders.tick(1, state);
        decoders.absorb(state);
    }

    /// Passes over as many batches like the last one as are sure to follow; returns whether there are any.
    fn pass_over(&mut self) -> bool {
        if !self.alike || self.start.state.num_finished() > 0 {
            return false;
        }
        let mut work = BatchWork::default();
        self.scratch.decoders.add_to(&mut work);
        let Some(run) = self.start.batch_time.decode_run(&work) else { return false };
        let steps = self.steps_before_arrival(&run, self.steps_alike());
        let ends = |steps| self.end.checked_add(run.duration(steps)?);
        let (true, Some(began), Some(end)) = (steps > 0, ends(steps.saturating_sub(1)), ends(steps)) else {
            return false;
        };
        let Scratch { decoders, .. } = &mut *self.scratch;
        let state = &mut self.start.state;
        // As many as are free at most, so they fit.
        state.kv.take_ahead(decoders.blocks(steps) as u32);
        decoders.tick(steps, state);
        decoders.absorb(state);
        (self.began, self.end) = (began, end);
        self.steps += steps;
        true
    }

    /// Returns the steps before anything happens to those who are there.
    fn steps_alike(&self) -> u64 {
        let Self { start, goal, scratch: Scratch { decoders, .. }, .. } = self;
        let query = &start.state.requests[start.query];
        let to_goal = match query.status {
            RequestStatus::Running => u64::from(goal.output_tokens - query.num_output_tokens),
            _ => u64::MAX,
        };
        let within = decoders.steps_within(start.state.kv.free());
        decoders.steps_alike().min(within).min(to_goal).min(goal.step_limit - self.steps)
    }

    /// Returns how many of so many steps are formed before somebody arrives who might be admitted.
    fn steps_before_arrival(&self, run: &DecodeRun, most: u64) -> u64 {
        let Start { state, arrivals, .. } = &self.start;
        let Some(&(arrives, _)) = arrivals.get(self.joined) else { return most };
        let full =
            self.scratch.decoders.takes_all() || state.running.len() >= state.config.max_num_seqs as usize;
        let behind_another = state.config.policy == QueuePolicy::Fcfs && !state.waiting.is_empty();
        if full || behind_another {
            return most;
        }
        let ahead = u64::from(state.config.async_scheduling);
        if ahead > 0 && self.began >= arrives {
            return 0;
        }
        // A step forms when the one before it ends; with asynchronous scheduling, when that one begins.
        let before = |steps: u64| {
            let ends = run.duration(steps).and_then(|duration| self.end.checked_add(duration));
            ends.is_some_and(|ends| ends < arrives)
        };
        let (mut sure, mut beyond) = (0, most.saturating_sub(ahead));
        while sure < beyond {
            let middle = sure + (beyond - sure) / 2;
            match before(middle) {
                true => sure = middle + 1,
                false => beyond = middle,
            }
        }
        (sure + ahead).min(most)
    }
}
