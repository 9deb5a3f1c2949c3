//! What an engine publishes of itself: the snapshot of DESIGN §4 and the gauges of `/metrics`.

use std::sync::Arc;

use super::{Counters, Departure, Engine, KvBlocks, Slot};
use crate::domain::{
    Timestamp,
    snapshot::{InFlight, MAX_LISTED_WAITING, QueuePolicy, Resident, SCHEMA, Snapshot, WaitingBeyond},
};

/// What a snapshot says besides the engine's state.
#[derive(Clone, Debug)]
pub struct SnapshotMeta {
    /// The publisher's name for itself.
    pub instance: String,
    /// Data-parallel rank.
    pub dp_rank: u32,
    /// Changes when the engine restarts.
    pub nonce: String,
    /// The present.
    pub captured: Timestamp,
}

impl Engine {
    /// Captures the state as of `meta.captured`: the running batch counted as computed, its tokens not
    /// yet emitted, every prefix hit looked up now. Requests that only wait for their release are left
    /// out, and their blocks count as they will without them.
    #[must_use]
    pub fn snapshot(&self, meta: SnapshotMeta) -> Snapshot {
        let (leaving, staying): (Vec<Slot>, Vec<Slot>) =
            self.state.running.iter().partition(|&&slot| self.leaves(slot));
        let departure = self.state.kv.departure(&leaving);
        let queue = self.queue();
        let (listed, beyond) = queue.split_at(queue.len().min(MAX_LISTED_WAITING));
        Snapshot {
            schema: SCHEMA.to_owned(),
            instance: meta.instance,
            dp_rank: meta.dp_rank,
            nonce: meta.nonce,
            seq: self.counters.steps,
            captured_unix_us: meta.captured,
            engine: self.params.clone(),
            free_kv_blocks: self.state.kv.free() + departure.freed,
            in_flight: self.in_flight(),
            running: staying.iter().filter_map(|&slot| self.running_resident(slot, &departure)).collect(),
            waiting: listed.iter().filter_map(|&slot| self.waiting_resident(slot, &departure)).collect(),
            waiting_beyond: self.beyond(beyond),
            scheduler_state: self.scheduler.scheduler_state(),
        }
    }

    /// Returns the ids of all residents: running in order, then waiting in queue order.
    #[must_use]
    pub fn residents(&self) -> Vec<Arc<str>> {
        let ids = self.state.running.iter().copied().chain(self.queue());
        ids.filter_map(|slot| self.identities[slot].as_ref()).map(|i| Arc::clone(&i.id)).collect()
    }

    /// Returns how many requests hold a seat.
    #[must_use]
    pub fn num_running(&self) -> usize {
        self.state.running.len()
    }

    /// Returns how many requests wait.
    #[must_use]
    pub fn num_waiting(&self) -> usize {
        self.state.waiting.len() + self.arrived.len()
    }

    /// Returns whether a batch runs.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the free blocks, cached but unheld ones included.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        self.state.kv.free()
    }

    /// Returns the share of usable blocks in use, from 0 to 1 (`vllm:kv_cache_usage_perc`).
    #[must_use]
    pub fn kv_cache_usage(&self) -> f64 {
        let usable = self.state.config.usable_blocks();
        1.0 - f64::from(self.state.kv.free()) / f64::from(usable.max(1))
    }

    /// Returns the totals since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns whether a running request only waits for its release.
    fn leaves(&self, slot: Slot) -> bool {
        self.state.requests[slot].is_finished() || self.identities[slot].as_ref().is_none_or(|i| i.aborted)
    }

    /// Returns everyone who waits, in the order of admission.
    fn queue(&self) -> Vec<Slot> {
        let mut queue: Vec<Slot> = self.state.waiting.iter().chain(&self.arrived).copied().collect();
        if self.state.config.policy == QueuePolicy::Priority {
            queue.sort_by_key(|&slot| self.state.requests[slot].priority_key());
        }
        queue
    }

    fn in_flight(&self) -> Option<InFlight> {
        let running = self.running.as_ref()?;
        let stays = running.batch.members.iter().filter(|member| !self.leaves(member.slot));
        let tokens = stays.filter_map(|member| {
            let identity = self.identities[member.slot].as_ref()?;
            Some((identity.id.to_string(), member.num_scheduled_tokens))
        });
        Some(InFlight { started_unix_us: running.started, tokens: tokens.collect() })
    }

    fn running_resident(&self, slot: Slot, departure: &Departure) -> Option<Resident> {
        let resident = self.resident(slot)?;
        let left_alone = departure.left_alone.get(&slot).copied().unwrap_or(0);
        Some(Resident {
            kv_blocks: self.state.kv.held(slot),
            kv_blocks_exclusive: Some(self.state.kv.exclusive(slot) + left_alone),
            ..resident
        })
    }

    fn waiting_resident(&self, slot: Slot, departure: &Departure) -> Option<Resident> {
        let num_tokens = self.state.requests[slot].num_tokens();
        let hit = self.state.kv.prefix_hit_after(departure, slot, num_tokens);
        let resident = self.resident(slot)?;
        Some(Resident { cached_tokens: hit.num_tokens, cached_blocks_in_use: hit.blocks_in_use, ..resident })
    }

    fn resident(&self, slot: Slot) -> Option<Resident> {
        let (identity, request) = (self.identities[slot].as_ref()?, &self.state.requests[slot]);
        Some(Resident {
            id: identity.id.to_string(),
            prompt_tokens: request.num_prompt_tokens,
            computed_tokens: request.num_computed_tokens,
            output_tokens: request.num_output_tokens,
            max_tokens: identity.max_tokens,
            priority: request.priority,
            ..Resident::default()
        })
    }

    fn beyond(&self, slots: &[Slot]) -> WaitingBeyond {
        let prefill_tokens = slots.iter().map(|&slot| {
            let num_tokens = self.state.requests[slot].num_tokens();
            u64::from(num_tokens - self.state.kv.prefix_hit(slot, num_tokens).num_tokens)
        });
        WaitingBeyond { requests: slots.len() as u32, prefill_tokens: prefill_tokens.sum() }
    }
}
