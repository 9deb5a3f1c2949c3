//! KV accounting under a scheduler: the seam, and the version that only counts.
//!
//! An estimate knows how many blocks each resident holds ([`BlockCounts`]); the simulated engine and
//! the lab know which ([`super::BlockCache`]). The batching rules are written once, over [`KvBlocks`].

use super::{SchedulerConfig, Slot};

/// A prefix hit that a waiting request would get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixHit {
    /// h: cached tokens, a multiple of the block size and less than the request's tokens.
    pub num_tokens: u32,
    /// u: blocks of the hit that running requests hold; the others are free and must be taken again.
    pub blocks_in_use: u32,
}

/// Blocks held by residents and blocks free. A caller checks [`KvBlocks::free`] before it takes.
pub trait KvBlocks {
    /// Makes room for a resident without blocks or hits.
    fn enrol(&mut self, slot: Slot);

    /// Returns F, the free blocks (cached but unheld ones included).
    fn free(&self) -> u32;

    /// Returns H, the blocks a resident holds.
    fn held(&self, slot: Slot) -> u32;

    /// Returns the hit a waiting request of `num_tokens` tokens would get.
    fn prefix_hit(&self, slot: Slot, num_tokens: u32) -> PrefixHit;

    /// Gives an admitted request its hit and new blocks up to `num_tokens` tokens.
    fn admit(&mut self, slot: Slot, hit: PrefixHit, num_tokens: u32);

    /// Gives a running request new blocks up to `num_tokens` tokens.
    fn extend(&mut self, slot: Slot, num_tokens: u32);

    /// Takes all blocks of a request that ended or was preempted.
    fn release(&mut self, slot: Slot);

    /// Says that nothing runs, so that every block must be free. Counts that drifted are set right.
    fn nothing_runs(&mut self, waiting: &mut dyn Iterator<Item = Slot>);
}

/// What is counted of one resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCount {
    /// H: blocks held.
    pub held: u32,
    /// X: of these, blocks nobody else holds.
    pub exclusive: u32,
    /// The prefix hit it would get while waiting, tokens.
    pub cached_tokens: u32,
    /// Blocks of that hit which running requests hold.
    pub cached_blocks_in_use: u32,
}

/// Accounting by counts alone, as far as a snapshot tells.
#[derive(Clone, Debug)]
pub struct BlockCounts {
    config: SchedulerConfig,
    free: u32,
    counts: Vec<BlockCount>,
}

impl BlockCounts {
    /// Starts with `free` free blocks and no resident.
    #[must_use]
    pub const fn new(config: SchedulerConfig, free: u32) -> Self {
        Self { config, free, counts: Vec::new() }
    }

    /// Adds the next resident's counts; residents are numbered in this order.
    pub fn push(&mut self, count: BlockCount) {
        self.counts.push(count);
    }

    /// Takes free blocks before it is told who holds them; a caller checks [`KvBlocks::free`] first.
    pub fn take_ahead(&mut self, blocks: u32) {
        self.free -= blocks;
    }

    /// Gives blocks taken ahead back.
    pub fn give_back(&mut self, blocks: u32) {
        self.free += blocks;
    }

    /// Says who holds blocks taken ahead: a running request, up to `num_tokens` tokens.
    pub fn settle(&mut self, slot: Slot, num_tokens: u32) {
        let count = &mut self.counts[slot];
        let more = self.config.blocks_for(num_tokens).saturating_sub(count.held);
        count.held += more;
        count.exclusive = count.exclusive.saturating_add(more);
    }

    /// Returns what is counted of a resident.
    #[must_use]
    pub fn count(&self, slot: Slot) -> BlockCount {
        self.counts[slot]
    }
}

impl KvBlocks for BlockCounts {
    fn enrol(&mut self, slot: Slot) {
        if self.counts.len() <= slot {
            self.counts.resize(slot + 1, BlockCount::default());
        }
    }

    fn free(&self) -> u32 {
        self.free
    }

    fn held(&self, slot: Slot) -> u32 {
        self.counts[slot].held
    }

    fn prefix_hit(&self, slot: Slot, num_tokens: u32) -> PrefixHit {
        if !self.config.enable_prefix_caching {
            return PrefixHit::default();
        }
        let (b, count) = (self.config.block_size, self.counts[slot]);
        let hit_blocks = (count.cached_tokens / b).min(num_tokens.saturating_sub(1) / b);
        PrefixHit { num_tokens: hit_blocks * b, blocks_in_use: count.cached_blocks_in_use.min(hit_blocks) }
    }

    fn admit(&mut self, slot: Slot, hit: PrefixHit, num_tokens: u32) {
        let held = self.config.blocks_for(num_tokens);
        let exclusive = held - hit.blocks_in_use;
        self.free -= exclusive;
        let count = &mut self.counts[slot];
        count.held = held;
        count.exclusive = exclusive;
    }

    fn extend(&mut self, slot: Slot, num_tokens: u32) {
        let need = self.config.blocks_for(num_tokens).saturating_sub(self.counts[slot].held);
        self.take_ahead(need);
        self.settle(slot, num_tokens);
    }

    /// A preempted request is taken to find nothing of its blocks again.
    fn release(&mut self, slot: Slot) {
        let count = std::mem::take(&mut self.counts[slot]);
        self.free = self.free.saturating_add(count.exclusive);
    }

    fn nothing_runs(&mut self, waiting: &mut dyn Iterator<Item = Slot>) {
        self.free = self.config.usable_blocks();
        for slot in waiting {
            self.counts[slot].cached_blocks_in_use = 0;
        }
    }
}
