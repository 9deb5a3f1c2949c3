//! Hashed KV blocks with reference counts and an LRU free queue (`vllm/v1/core/block_pool.py` and
//! `single_type_kv_cache_manager.py`, release 0.32).
//!
//! A block can be found as soon as it is allocated full, in the very step that fills it; a freed one
//! keeps its hash until it is taken for other tokens.

use std::{collections::HashMap, sync::Arc};

use super::{KvBlocks, PrefixHit, SchedulerConfig, Slot};

const NONE: u32 = u32::MAX;

/// One block. While free, `prev` and `next` chain it into the free queue.
#[derive(Clone, Copy, Debug)]
struct Block {
    ref_count: u32,
    hash: Option<u64>,
    /// The next block with the same hash, in the order they were hashed.
    same_hash: u32,
    /// XOR of the holders' slots: with one holder left it names that holder.
    holders: usize,
    prev: u32,
    next: u32,
}

/// The blocks of one resident.
#[derive(Clone, Debug, Default)]
struct BlockTable {
    blocks: Vec<u32>,
    exclusive: u32,
    num_hashed: usize,
    hashes: Arc<[u64]>,
}

/// Block-level accounting with prefix caching.
#[derive(Clone, Debug)]
pub struct BlockCache {
    config: SchedulerConfig,
    blocks: Vec<Block>,
    by_hash: HashMap<u64, u32>,
    tables: Vec<BlockTable>,
    free_head: u32,
    free_tail: u32,
    num_free: u32,
}

impl BlockCache {
    /// Starts with every usable block free and unhashed.
    #[must_use]
    pub fn new(config: SchedulerConfig) -> Self {
        let num_blocks = config.usable_blocks();
        let mut cache = Self {
            config,
            blocks: Vec::with_capacity(num_blocks as usize),
            by_hash: HashMap::new(),
            tables: Vec::new(),
            free_head: NONE,
            free_tail: NONE,
            num_free: 0,
        };
        for block in 0..num_blocks {
            cache.blocks.push(Block {
                ref_count: 0,
                hash: None,
                same_hash: NONE,
                holders: 0,
                prev: NONE,
                next: NONE,
            });
            cache.push_free_back(block);
        }
        cache
    }

    /// Gives a slot to a new resident. `hashes` are those of its full blocks from the first token on,
    /// each chained to the one before; they may go on into its output.
    pub fn register(&mut self, slot: Slot, hashes: Arc<[u64]>) {
        if self.tables.len() <= slot {
            self.tables.resize_with(slot + 1, BlockTable::default);
        }
        self.tables[slot].hashes = hashes;
    }

    /// Returns X, the blocks that only this resident holds.
    #[must_use]
    pub fn exclusive(&self, slot: Slot) -> u32 {
        self.tables[slot].exclusive
    }

    /// Returns the first block with this hash.
    fn find(&self, hash: u64) -> Option<u32> {
        self.by_hash.get(&hash).copied()
    }

    fn hold(&mut self, slot: Slot, block: u32) {
        let entry = &mut self.blocks[block as usize];
        if entry.ref_count == 1 {
            self.tables[entry.holders].exclusive -= 1;
        }
        entry.ref_count += 1;
        entry.holders ^= slot;
        let table = &mut self.tables[slot];
        table.blocks.push(block);
        table.exclusive += u32::from(entry.ref_count == 1);
    }

    /// Takes new blocks for a resident up to `num_tokens` tokens and makes the full ones findable.
    fn allocate(&mut self, slot: Slot, num_tokens: u32) {
        let wanted = self.config.blocks_for(num_tokens) as usize;
        while self.tables[slot].blocks.len() < wanted {
            let block = self.free_head;
            debug_assert_ne!(block, NONE, "the caller checked that blocks are free");
            if block == NONE {
                return;
            }
            self.remove_free(block);
            self.forget_hash(block);
            self.hold(slot, block);
        }
        if !self.config.enable_prefix_caching {
            return;
        }
        let table = &self.tables[slot];
        let num_full = ((num_tokens / self.config.block_size) as usize).min(table.hashes.len());
        for index in table.num_hashed..num_full {
            let table = &mut self.tables[slot];
            table.num_hashed = index + 1;
            let (block, hash) = (table.blocks[index], table.hashes[index]);
            self.remember_hash(block, hash);
        }
    }

    fn remember_hash(&mut self, block: u32, hash: u64) {
        self.blocks[block as usize].hash = Some(hash);
        let Some(mut last) = self.find(hash) else {
            self.by_hash.insert(hash, block);
            return;
        };
        while self.blocks[last as usize].same_hash != NONE {
            last = self.blocks[last as usize].same_hash;
        }
        self.blocks[last as usize].same_hash = block;
    }

    fn forget_hash(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        let next = std::mem::replace(&mut entry.same_hash, NONE);
        let Some(hash) = entry.hash.take() else { return };
        let Some(&first) = self.by_hash.get(&hash) else { return };
        if first != block {
            let mut at = first;
            while self.blocks[at as usize].same_hash != block {
                at = self.blocks[at as usize].same_hash;
            }
            self.blocks[at as usize].same_hash = next;
        } else if next == NONE {
            self.by_hash.remove(&hash);
        } else {
            self.by_hash.insert(hash, next);
        }
    }

    fn remove_free(&mut self, block: u32) {
        let Block { prev, next, .. } = self.blocks[block as usize];
        match prev {
            NONE => self.free_head = next,
            prev => self.blocks[prev as usize].next = next,
        }
        match next {
            NONE => self.free_tail = prev,
            next => self.blocks[next as usize].prev = prev,
        }
        self.num_free -= 1;
    }

    fn push_free_back(&mut self, block: u32) {
        let tail = std::mem::replace(&mut self.free_tail, block);
        (self.blocks[block as usize].prev, self.blocks[block as usize].next) = (tail, NONE);
        match tail {
            NONE => self.free_head = block,
            tail => self.blocks[tail as usize].next = block,
        }
        self.num_free += 1;
    }

    fn push_free_front(&mut self, block: u32) {
        let head = std::mem::replace(&mut self.free_head, block);
        (self.blocks[block as usize].prev, self.blocks[block as usize].next) = (NONE, head);
        match head {
            NONE => self.free_tail = block,
            head => self.blocks[head as usize].prev = block,
        }
        self.num_free += 1;
    }
}

impl KvBlocks for BlockCache {
    fn free(&self) -> u32 {
        self.num_free
    }

    fn held(&self, slot: Slot) -> u32 {
        self.tables[slot].blocks.len() as u32
    }

    /// The longest run of cached full blocks, short of the last token: one is always computed.
    fn prefix_hit(&self, slot: Slot, num_tokens: u32) -> PrefixHit {
        let mut hit = PrefixHit::default();
        if !self.config.enable_prefix_caching {
            return hit;
        }
        let most = (num_tokens.saturating_sub(1) / self.config.block_size) as usize;
        for &hash in self.tables[slot].hashes.iter().take(most) {
            let Some(block) = self.find(hash) else { break };
            hit.num_tokens += self.config.block_size;
            hit.blocks_in_use += u32::from(self.blocks[block as usize].ref_count > 0);
        }
        hit
    }

    fn admit(&mut self, slot: Slot, hit: PrefixHit, num_tokens: u32) {
        let num_hit = (hit.num_tokens / self.config.block_size) as usize;
        let hashes = Arc::clone(&self.tables[slot].hashes);
        for block in hashes[..num_hit].iter().map_while(|&hash| self.find(hash)).collect::<Vec<_>>() {
            if self.blocks[block as usize].ref_count == 0 {
                self.remove_free(block);
            }
            self.hold(slot, block);
        }
        self.tables[slot].num_hashed = num_hit;
        self.allocate(slot, num_tokens);
    }

    fn extend(&mut self, slot: Slot, num_tokens: u32) {
        self.allocate(slot, num_tokens);
    }

    /// Frees last block first, so that the tail of a prefix is lost before its head; never-hashed blocks
    /// go to the front of the queue, as nobody can find them.
    fn release(&mut self, slot: Slot) {
        let mut held = std::mem::take(&mut self.tables[slot].blocks);
        self.tables[slot].exclusive = 0;
        self.tables[slot].num_hashed = 0;
        while let Some(block) = held.pop() {
            let entry = &mut self.blocks[block as usize];
            entry.ref_count -= 1;
            entry.holders ^= slot;
            match entry.ref_count {
                0 if entry.hash.is_some() => self.push_free_back(block),
                0 => self.push_free_front(block),
                1 => self.tables[entry.holders].exclusive += 1,
                _ => {}
            }
        }
        self.tables[slot].blocks = held;
    }

    fn nothing_runs(&mut self, _waiting: &mut dyn Iterator<Item = Slot>) {}
}
