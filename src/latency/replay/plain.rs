//! The step-by-step replay: the reference that every faster one must equal.

use super::{Scenario, Start, StateError};
use crate::engine::{Batch, BatchWork, Member, RequestStatus, Slot};

/// Where a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The query's output tokens to reach; it also stops with the query's last one.
    pub output_tokens: u32,
    /// Steps after which it gives up.
    pub step_limit: u64,
}

/// How a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The query reached the goal, or its last token before.
    Reached,
    /// Nothing can ever run again.
    Unschedulable,
    /// The step limit came first.
    Limit,
}

/// What a replay found; times are attoseconds from the query's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// How it ended.
    pub ended: Ended,
    /// To when the batch begins that admits the query.
    pub wait: Option<i128>,
    /// To the end of the batch in which it emits its first token (eq. 11).
    pub ttft: Option<i128>,
    /// To the end of the last batch replayed.
    pub end: i128,
    /// The query's output tokens then.
    pub output_tokens: u32,
    /// Batches formed and run, and empty formations that preempted.
    pub steps: u64,
}

/// One step as a trace sees it; times are attoseconds from the capture.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// When it starts.
    pub start: i128,
    /// How long it takes; 0 for an empty formation that preempted.
    pub duration: i128,
    /// Who runs, in scheduling order.
    pub members: &'a [Member],
    /// Who lost its blocks for it.
    pub preempted: &'a [Slot],
}

/// Replays a scenario step by step.
///
/// # Errors
/// The scenario breaks a rule (see [`Start::new`]).
pub fn plain(scenario: &Scenario<'_>, goal: Goal) -> Result<Replayed, StateError> {
    Ok(Start::new(scenario)?.plain(goal, |_| ()))
}

impl Start {
    /// Runs step by step and shows each to `trace`.
    pub fn plain(self, goal: Goal, trace: impl FnMut(Step<'_>)) -> Replayed {
        let arrived = self.arrivals.iter().find(|&&(_, slot)| slot == self.query).map_or(0, |&(at, _)| at);
        let mut run = Run {
            start: self,
            goal,
            trace,
            batch: Batch::default(),
            unshown: Vec::new(),
            joined: 0,
            began: 0,
            end: 0,
            steps: 0,
            scheduled: None,
            first_token: None,
        };
        let ended = run.drive().err().unwrap_or(Ended::Reached);
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
struct Run<F> {
    start: Start,
    goal: Goal,
    trace: F,
    /// The batch formed last.
    batch: Batch,
    /// Preempted by an empty formation that was no step of its own.
    unshown: Vec<Slot>,
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

impl<F: FnMut(Step<'_>)> Run<F> {
    /// Runs batch after batch until the query has its token; otherwise returns why it never will.
    fn drive(&mut self) -> Result<(), Ended> {
        match self.start.flying.take() {
            Some(flying) => {
                self.began = flying.started;
                self.end = self.began.saturating_add(self.start.batch_time.duration(&flying.work)).max(0);
                for slot in flying.emitting {
                    self.start.state.emit(slot);
                }
            }
            None => self.fresh_start(0)?,
        }
        while !self.query_is_there() {
            if self.steps >= self.goal.step_limit {
                return Err(Ended::Limit);
            }
            let formed_behind = self.start.state.config.async_scheduling && self.form_behind();
            self.start.state.release_finished(|_| ());
            match formed_behind {
                true => self.run(self.end),
                false => self.fresh_start(self.end)?,
            }
        }
        Ok(())
    }

    fn query_is_there(&mut self) -> bool {
        let query = &self.start.state.requests[self.start.query];
        if query.num_output_tokens > 0 {
            self.first_token.get_or_insert(self.end);
        }
        query.num_output_tokens >= self.goal.output_tokens || query.is_finished()
    }

    /// Forms the next batch while this one runs, from those who were there when it began.
    fn form_behind(&mut self) -> bool {
        self.join(self.began);
        self.form();
        if self.batch.is_empty() {
            self.unshown.extend_from_slice(&self.batch.preempted);
        }
        !self.batch.is_empty()
    }

    /// Forms a batch with nothing in flight, at `at` or at the first later arrival that makes it possible,
    /// and runs it.
    fn fresh_start(&mut self, mut at: i128) -> Result<(), Ended> {
        loop {
            self.join(at);
            self.form();
            if !self.batch.is_empty() {
                self.run(at);
                return Ok(());
            }
            if self.batch.preempted.is_empty() {
                at = self.start.arrivals.get(self.joined).ok_or(Ended::Unschedulable)?.0;
                continue;
            }
            self.step(at, 0);
            if self.steps >= self.goal.step_limit {
                return Err(Ended::Limit);
            }
        }
    }

    /// Lets arrivals up to `at` join the back of the queue.
    fn join(&mut self, at: i128) {
        let arrivals = &self.start.arrivals[self.joined..];
        let due = arrivals.iter().take_while(|&&(arrives, _)| arrives <= at);
        self.start.state.waiting.extend(due.clone().map(|&(_, slot)| slot));
        self.joined += due.count();
    }

    fn form(&mut self) {
        self.start.scheduler.form(&mut self.start.state, &mut self.batch);
    }

    /// Runs the formed batch from `at` on and applies it.
    fn run(&mut self, at: i128) {
        let duration = self.start.batch_time.duration(&BatchWork::from(&self.batch));
        self.began = at;
        self.end = at.saturating_add(duration);
        self.step(at, duration);
        if self.start.state.requests[self.start.query].status == RequestStatus::Running {
            self.scheduled.get_or_insert(at);
        }
        self.start.state.advance(&self.batch);
        for member in self.batch.members.iter().filter(|member| member.emits) {
            self.start.state.emit(member.slot);
        }
    }

    /// Counts and shows the formed batch as one step.
    fn step(&mut self, start: i128, duration: i128) {
        self.steps += 1;
        self.batch.preempted.splice(0..0, self.unshown.drain(..));
        let Batch { members, preempted } = &self.batch;
        (self.trace)(Step { start, duration, members, preempted });
    }
}
