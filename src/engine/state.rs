//! The resident set: what a scheduler forms its batches from, and what a batch does to it.

use std::collections::VecDeque;

use super::{Batch, KvBlocks, Request, RequestStatus, SchedulerConfig, Slot};

/// Waiting requests that differ in their arrival order only: the first stands in the queue for all, so
/// that however many they are they cost nothing until admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// The one in the queue; it holds no block and hits none.
    pub front: Slot,
    /// How many stand behind it, in the order of arrival right after it.
    pub behind: u32,
}

/// Residents of one engine and their blocks.
#[derive(Clone, Debug)]
pub struct EngineState<K> {
    /// The scheduler's parameters.
    pub config: SchedulerConfig,
    /// Residents by slot; slots in neither list are vacant or not yet arrived.
    pub requests: Vec<Request>,
    /// Admitted requests in admission order, finished ones included until released.
    pub running: Vec<Slot>,
    /// Waiting requests in queue order.
    pub waiting: VecDeque<Slot>,
    /// Waiting requests that one of `waiting` stands for.
    pub crowd: Crowd,
    /// Their blocks.
    pub kv: K,
    num_finished: usize,
}

impl<K: KvBlocks> EngineState<K> {
    /// Starts without residents.
    pub const fn new(config: SchedulerConfig, kv: K) -> Self {
        Self {
            config,
            requests: Vec::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            crowd: Crowd { front: 0, behind: 0 },
            kv,
            num_finished: 0,
        }
    }

    /// Returns how many requests wait, the crowd included.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len() + self.crowd.behind as usize
    }

    /// Takes a request out of the queue, before its admission changes it. Where it stands for a crowd the
    /// next of them takes its place, under a new slot.
    pub fn leave_queue(&mut self, queue_index: usize) {
        let slot = self.waiting[queue_index];
        if self.crowd.behind == 0 || slot != self.crowd.front {
            self.waiting.remove(queue_index);
            return;
        }
        let next = self.requests.len();
        let request = self.requests[slot];
        self.requests.push(Request { arrival: request.arrival + 1, ..request });
        self.kv.enrol(next);
        self.waiting[queue_index] = next;
        self.crowd = Crowd { front: next, behind: self.crowd.behind - 1 };
    }

    /// Moves C of every member on by its tokens, as the engine does when the batch is formed.
    pub fn advance(&mut self, batch: &Batch) {
        for member in &batch.members {
            self.requests[member.slot].num_computed_tokens += member.num_scheduled_tokens;
        }
    }

    /// Gives an emitting request its token; it is finished with its last one or at the model's length.
    /// Returns whether it is.
    pub fn emit(&mut self, slot: Slot) -> bool {
        let max_model_len = self.config.max_model_len;
        let request = &mut self.requests[slot];
        request.num_output_tokens += 1;
        request.num_remaining_tokens -= 1;
        let finished = request.num_remaining_tokens == 0 || request.num_tokens() >= max_model_len;
        if finished {
            self.finish(slot);
        }
        finished
    }

    /// Marks a running request as finished; it keeps its seat and blocks until released.
    pub fn finish(&mut self, slot: Slot) {
        if !self.requests[slot].is_finished() {
            self.requests[slot].status = RequestStatus::Finished;
            self.num_finished += 1;
        }
    }

    /// Returns how many finished requests are not released yet.
    pub const fn num_finished(&self) -> usize {
        self.num_finished
    }

    /// Frees the seats and blocks of all finished requests and hands each to `released`.
    pub fn release_finished(&mut self, mut released: impl FnMut(Slot)) {
        if self.num_finished == 0 {
            return;
        }
        let Self { requests, running, kv, .. } = self;
        running.retain(|&slot| {
            let finished = requests[slot].is_finished();
            if finished {
                kv.release(slot);
                released(slot);
            }
            !finished
        });
        self.num_finished = 0;
    }
}
