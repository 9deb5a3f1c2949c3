//! The lead of `running` whose members all decode: advanced together, told one by one only when needed.
//!
//! A step costs the lead one tick, whatever its size. The counts in the resident set stand still while a
//! request is a member; [`Decoders::settle`] brings them up to date.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::engine::{BatchWork, BlockCounts, EngineState, KvBlocks, Lead, Request, Slot};

/// Largest block size whose phases are counted in an array; engines have 16 to 2,096 tokens in a block.
/// Above it nobody joins the lead.
const MAX_PHASES: u32 = 4_096;

/// A tick and whom it concerns, the earliest on top.
type Due = BinaryHeap<Reverse<(u64, Slot)>>;

/// What is kept of one slot.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Whether it is a member.
    member: bool,
    /// The tick up to which its counts in the resident set are told.
    told: u64,
    /// The tick before which it needs no block, and from which on one every `block_size` ticks.
    takes_from: u64,
    /// Whether it counts among the takers.
    takes: bool,
}

/// The lead under way; reused from replay to replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoders {
    block_size: u32,
    max_members: u32,
    /// Steps the lead has gone.
    ticks: u64,
    /// The first of `running`: members, and finished ones not released yet.
    requests: usize,
    finished: usize,
    members: u32,
    /// Σ C over members.
    context_tokens: u64,
    /// Takers by the tick, modulo the block size, at which they take a block.
    phases: Vec<u32>,
    takers: u32,
    /// Members that hold more blocks than their tokens need, by when they become takers.
    spared: Due,
    /// Members by their last tick.
    last: Due,
    entries: Vec<Entry>,
}

impl Decoders {
    /// Starts over without members.
    pub(super) fn reset(&mut self, state: &EngineState<BlockCounts>) {
        self.block_size = state.config.block_size;
        self.max_members = match self.block_size {
            ..=MAX_PHASES => state.config.max_num_batched_tokens,
            _ => 0,
        };
        self.entries.clear();
        self.clear();
    }

    fn clear(&mut self) {
        (self.ticks, self.requests, self.finished, self.members) = (0, 0, 0, 0);
        (self.context_tokens, self.takers) = (0, 0);
        self.phases.clear();
        self.spared.clear();
        self.last.clear();
    }

    /// Returns the lead as a scheduler is told of it.
    pub(super) const fn lead(&self) -> Lead {
        Lead { requests: self.requests, tokens: self.members }
    }

    /// Returns whether no token of the budget is left to anyone else.
    pub(super) const fn takes_all(&self) -> bool {
        self.members == self.max_members
    }

    /// Adds what the lead does in one step.
    pub(super) fn add_to(&self, work: &mut BatchWork) {
        let members = u64::from(self.members);
        work.tokens += members;
        work.decode_context_tokens += self.context_tokens;
        work.emitting += members;
    }

    /// Returns the steps until a member has its last token or one that was spared takes blocks.
    pub(super) fn steps_alike(&self) -> u64 {
        let soonest = |due: &Due| due.peek().map_or(u64::MAX, |&Reverse((tick, _))| tick);
        soonest(&self.last).min(soonest(&self.spared)) - self.ticks
    }

    /// Returns the blocks that so many steps alike take.
    pub(super) fn blocks(&self, steps: u64) -> u64 {
        if self.takers == 0 {
            return 0;
        }
        let size = u64::from(self.block_size);
        let part: u64 = self.phases_on().take((steps % size) as usize).map(u64::from).sum();
        steps / size * u64::from(self.takers) + part
    }

    /// Returns the steps alike whose blocks are among so many.
    pub(super) fn steps_within(&self, blocks: u32) -> u64 {
        let Some(rounds) = blocks.checked_div(self.takers) else { return u64::MAX };
        let mut left = blocks % self.takers;
        let fits = |&takers: &u32| {
            let rest = left.checked_sub(takers);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        u64::from(rounds) * u64::from(self.block_size) + self.phases_on().take_while(fits).count() as u64
    }

    /// Returns the takers tick by tick, from the next on, for one round.
    fn phases_on(&self) -> impl Iterator<Item = u32> {
        let (before, after) = self.phases.split_at((self.ticks % u64::from(self.block_size)) as usize);
        after.iter().chain(before).copied()
    }

    /// Moves the lead on by steps whose blocks are taken.
    pub(super) fn tick(&mut self, steps: u64, state: &mut EngineState<BlockCounts>) {
        self.ticks += steps;
        self.context_tokens += steps * u64::from(self.members);
        while let Some(slot) = pop(&mut self.spared, self.ticks) {
            if self.entries[slot].member {
                self.count_taker(slot);
            }
        }
        while let Some(slot) = pop(&mut self.last, self.ticks) {
            self.settle(slot, state);
            self.leave(slot, &state.requests[slot]);
            state.finish(slot);
            self.finished += 1;
        }
    }

    /// Lets those behind the lead join it, until one comes that does more than decode.
    pub(super) fn absorb(&mut self, state: &EngineState<BlockCounts>) {
        while let Some(&slot) = state.running.get(self.requests) {
            let request = &state.requests[slot];
            if request.is_finished() {
                self.finished += 1;
            } else if !self.join(slot, request, state) {
                return;
            }
            self.requests += 1;
        }
    }

    /// Takes a member in; one that prefills, or lacks blocks for what it has computed, is none yet.
    fn join(&mut self, slot: Slot, request: &Request, state: &EngineState<BlockCounts>) -> bool {
        let (size, computed) = (u64::from(self.block_size), u64::from(request.num_computed_tokens));
        let room = (u64::from(state.kv.held(slot)) * size).checked_sub(computed);
        let Some(room) = room.filter(|_| request.decodes() && self.members < self.max_members) else {
            return false;
        };
        if self.phases.is_empty() {
            self.phases.resize(self.block_size as usize, 0);
        }
        if self.entries.len() <= slot {
            self.entries.resize(state.requests.len(), Entry::default());
        }
        let takes_from = self.ticks + room;
        self.entries[slot] = Entry { member: true, told: self.ticks, takes_from, takes: false };
        match room < size {
            true => self.count_taker(slot),
            false => self.spared.push(Reverse((takes_from - (size - 1), slot))),
        }
        let to_model_end = state.config.max_model_len - request.num_tokens();
        let steps = request.num_remaining_tokens.min(to_model_end);
        self.last.push(Reverse((self.ticks + u64::from(steps), slot)));
        self.members += 1;
        self.context_tokens += computed;
        true
    }

    fn count_taker(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot];
        entry.takes = true;
        self.phases[(entry.takes_from % u64::from(self.block_size)) as usize] += 1;
        self.takers += 1;
    }

    fn leave(&mut self, slot: Slot, told: &Request) {
        let entry = &mut self.entries[slot];
        entry.member = false;
        self.members -= 1;
        self.context_tokens -= u64::from(told.num_computed_tokens);
        if entry.takes {
            self.phases[(entry.takes_from % u64::from(self.block_size)) as usize] -= 1;
            self.takers -= 1;
        }
    }

    /// Brings a slot's counts up to date; nothing to do where it is no member.
    pub(super) fn settle(&mut self, slot: Slot, state: &mut EngineState<BlockCounts>) {
        let Some(entry) = self.entries.get_mut(slot).filter(|entry| entry.member) else { return };
        let steps = (self.ticks - entry.told) as u32;
        entry.told = self.ticks;
        let request = &mut state.requests[slot];
        request.num_computed_tokens += steps;
        request.num_output_tokens += steps;
        request.num_remaining_tokens -= steps;
        state.kv.settle(slot, request.num_computed_tokens);
    }

    /// Brings everyone's counts up to date and gives the lead up.
    pub(super) fn disband(&mut self, state: &mut EngineState<BlockCounts>) {
        for index in 0..self.requests {
            let slot = state.running[index];
            self.settle(slot, state);
            if let Some(entry) = self.entries.get_mut(slot) {
                entry.member = false;
            }
        }
        self.clear();
    }

    /// Says that the finished of the lead left `running`.
    pub(super) fn released(&mut self) {
        self.requests -= std::mem::take(&mut self.finished);
    }
}

/// Takes the earliest out where it is due by `tick`.
fn pop(due: &mut Due, tick: u64) -> Option<Slot> {
    let &Reverse((at, slot)) = due.peek()?;
    (at <= tick).then(|| {
        due.pop();
        slot
    })
}
