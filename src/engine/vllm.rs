//! vLLM's batching rules (`vllm/v1/core/sched/scheduler.py`, release 0.32, without speculation).
//!
//! Running requests come first, each towards its last known token; then the waiting queue, unless memory
//! ran short. There is no prefill phase and no decode phase: only tokens computed and tokens known.

use super::{
    Batch, BatchScheduler, EngineState, KvBlocks, Lead, Member, Origin, RequestStatus, SchedulerConfig,
    SchedulerEntry, Slot,
};
use crate::domain::snapshot::QueuePolicy;

/// The registry's line.
pub(super) const ENTRY: SchedulerEntry = SchedulerEntry {
    name: "vllm-v1",
    summary: "vLLM V1: decodes and prompt chunks share each step's token budget",
    counted: |_, _| Ok(Box::new(VllmV1)),
    cached: |_, _| Ok(Box::new(VllmV1)),
};

/// vLLM V1's scheduler; all its state is in the resident set.
#[derive(Clone, Copy, Debug)]
pub(super) struct VllmV1;

impl<K: KvBlocks> BatchScheduler<K> for VllmV1 {
    fn form(&mut self, state: &mut EngineState<K>, batch: &mut Batch) {
        batch.clear();
        if state.running.is_empty() {
            state.kv.nothing_runs(&mut state.waiting.iter().copied());
        }
        let mut step = Step {
            token_budget: state.config.max_num_batched_tokens,
            long_prefill_token_threshold: threshold(state),
            state,
            batch,
        };
        step.schedule_running(0);
        if step.batch.preempted.is_empty() {
            step.schedule_waiting();
        }
    }

    fn form_behind_lead(&mut self, state: &mut EngineState<K>, batch: &mut Batch, lead: Lead) -> bool {
        batch.clear();
        let Some(token_budget) = state.config.max_num_batched_tokens.checked_sub(lead.tokens) else {
            return false;
        };
        let long_prefill_token_threshold = threshold(state);
        let mut step = Step { token_budget, long_prefill_token_threshold, state, batch };
        let fits = step.running_fits(lead.requests);
        if fits {
            step.schedule_running(lead.requests);
            step.schedule_waiting();
        }
        fits
    }
}

/// Returns the cap on one request's tokens; a request alone has none.
fn threshold<K: KvBlocks>(state: &EngineState<K>) -> u32 {
    let alone = state.running.len() + state.num_waiting() <= 1;
    match state.config.long_prefill_token_threshold {
        0 => u32::MAX,
        _ if alone => u32::MAX,
        threshold => threshold,
    }
}

/// One formation under way.
struct Step<'a, K> {
    state: &'a mut EngineState<K>,
    batch: &'a mut Batch,
    token_budget: u32,
    long_prefill_token_threshold: u32,
}

impl<K: KvBlocks> Step<'_, K> {
    fn config(&self) -> SchedulerConfig {
        self.state.config
    }

    /// Returns whether the running requests from a position on get their blocks without a preemption.
    fn running_fits(&self, first: usize) -> bool {
        let (mut token_budget, mut free) = (self.token_budget, self.state.kv.free());
        for &slot in &self.state.running[first..] {
            let num_new_tokens = self.num_new_running_tokens(slot, token_budget);
            if num_new_tokens == 0 {
                continue;
            }
            let num_tokens = self.state.requests[slot].num_computed_tokens + num_new_tokens;
            let blocks = self.config().blocks_for(num_tokens).saturating_sub(self.state.kv.held(slot));
            if blocks > free {
                return false;
            }
            free -= blocks;
            token_budget -= num_new_tokens;
        }
        true
    }

    fn schedule_running(&mut self, first: usize) {
        let mut req_index = first;
        while req_index < self.state.running.len() && self.token_budget > 0 {
            let slot = self.state.running[req_index];
            let num_new_tokens = self.num_new_running_tokens(slot, self.token_budget);
            if num_new_tokens == 0 {
                req_index += 1;
                continue;
            }
            let num_tokens = self.state.requests[slot].num_computed_tokens + num_new_tokens;
            let blocks = self.config().blocks_for(num_tokens).saturating_sub(self.state.kv.held(slot));
            while blocks > self.state.kv.free() {
                let Some(victim_index) = self.victim_index() else { return };
                let victim = self.preempt(victim_index);
                if victim == slot {
                    return;
                }
                if victim_index < req_index {
                    req_index -= 1;
                }
            }
            self.state.kv.extend(slot, num_tokens);
            self.schedule(slot, num_new_tokens, Origin::Running);
            req_index += 1;
        }
    }

    /// Returns the tokens a running request gets of a budget; a finished one gets none.
    fn num_new_running_tokens(&self, slot: Slot, token_budget: u32) -> u32 {
        let request = &self.state.requests[slot];
        if request.is_finished() {
            return 0;
        }
        let to_model_end = (self.config().max_model_len - 1).saturating_sub(request.num_computed_tokens);
        request
            .num_tokens()
            .saturating_sub(request.num_computed_tokens)
            .min(self.long_prefill_token_threshold)
            .min(token_budget)
            .min(to_model_end)
    }

    /// Returns the position in `running` of the request that must give its blocks: the last one under
    /// fcfs, the one with the largest (priority, arrival) under priority. Finished requests are spared.
    fn victim_index(&self) -> Option<usize> {
        let EngineState { requests, running, config, .. } = &*self.state;
        let mut candidates = running.iter().enumerate().filter(|&(_, &slot)| !requests[slot].is_finished());
        match config.policy {
            QueuePolicy::Fcfs => candidates.next_back(),
            QueuePolicy::Priority => candidates.max_by_key(|&(_, &slot)| requests[slot].priority_key()),
        }
        .map(|(index, _)| index)
    }

    /// Sends a running request back to the front of the queue, without blocks or computed tokens.
    fn preempt(&mut self, index: usize) -> Slot {
        let victim = self.state.running.remove(index);
        self.token_budget += self.batch.withdraw(victim);
        self.state.kv.release(victim);
        let request = &mut self.state.requests[victim];
        request.num_computed_tokens = 0;
        request.status = RequestStatus::Preempted;
        self.state.waiting.push_front(victim);
        self.batch.preempted.push(victim);
        victim
    }

    fn schedule_waiting(&mut self) {
        let max_num_seqs = self.config().max_num_seqs as usize;
        while self.token_budget > 0 && self.state.running.len() < max_num_seqs {
            let Some(queue_index) = self.head_index() else { return };
            if !self.admit(queue_index) {
                return;
            }
        }
    }

    /// Returns the position in `waiting` of the request to admit next.
    fn head_index(&self) -> Option<usize> {
        let EngineState { requests, waiting, config, .. } = &*self.state;
        match config.policy {
            QueuePolicy::Fcfs => (!waiting.is_empty()).then_some(0),
            QueuePolicy::Priority => {
                (0..waiting.len()).min_by_key(|&index| requests[waiting[index]].priority_key())
            }
        }
    }

    /// Admits the head of the queue and returns true, or leaves it there: nobody overtakes it.
    fn admit(&mut self, queue_index: usize) -> bool {
        let config = self.config();
        let slot = self.state.waiting[queue_index];
        let num_tokens = self.state.requests[slot].num_tokens();
        let hit = self.state.kv.prefix_hit(slot, num_tokens);
        let num_new_tokens = (num_tokens - hit.num_tokens).min(self.long_prefill_token_threshold);
        if !config.enable_chunked_prefill && num_new_tokens > self.token_budget {
            return false;
        }
        let num_new_tokens = num_new_tokens.min(self.token_budget);
        let first_tokens = hit.num_tokens + num_new_tokens;
        if config.reserve_full_isl && !self.fits(num_tokens.min(config.max_model_len), hit.blocks_in_use) {
            return false;
        }
        if !self.fits(first_tokens, hit.blocks_in_use) {
            return false;
        }
        self.state.leave_queue(queue_index);
        self.state.running.push(slot);
        self.state.kv.admit(slot, hit, first_tokens);
        let request = &mut self.state.requests[slot];
        request.num_computed_tokens = hit.num_tokens;
        let preempted = request.status == RequestStatus::Preempted;
        request.status = RequestStatus::Running;
        self.schedule(slot, num_new_tokens, if preempted { Origin::Resumed } else { Origin::New });
        true
    }

    /// Returns whether blocks for `num_tokens` tokens are free, beside those already in use and, while
    /// something runs, the watermark.
    fn fits(&self, num_tokens: u32, blocks_in_use: u32) -> bool {
        let watermark = if self.state.running.is_empty() { 0 } else { self.config().watermark_blocks };
        let wanted = u64::from(self.config().blocks_for(num_tokens) - blocks_in_use) + u64::from(watermark);
        wanted <= u64::from(self.state.kv.free())
    }

    fn schedule(&mut self, slot: Slot, num_scheduled_tokens: u32, origin: Origin) {
        let request = &self.state.requests[slot];
        self.token_budget -= num_scheduled_tokens;
        self.batch.members.push(Member {
            slot,
            num_scheduled_tokens,
            num_computed_tokens: request.num_computed_tokens,
            decodes: request.decodes(),
            emits: request.num_computed_tokens + num_scheduled_tokens == request.num_tokens(),
            origin,
        });
    }
}
