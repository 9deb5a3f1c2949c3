//! The resident set: what a scheduler forms its batches from, and what a batch does to it.

use std::collections::VecDeque;

use super::{Batch, KvBlocks, Request, RequestStatus, SchedulerConfig, Slot};

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
            kv,
            num_finished: 0,
        }
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
