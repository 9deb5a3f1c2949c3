//! Hashed KV blocks with reference counts and an LRU free queue (`vllm/v1/core/block_pool.py` and
//! `single_type_kv_cache_manager.py`, release 0.32).
//!
//! A block can be found as soon as it is allocated full, in the very step that fills it; a freed one
//! keeps its hash until it is taken for other tokens.

use std::{collections::HashMap, sync::Arc};

use super::{KvBlocks, PrefixHit, SchedulerConfig, Slot};

const NONE: u32 = u32::MAX;

/// What it means for the blocks that some residents are about to leave together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Blocks that nobody else holds: they will be free.
    pub freed: u32,
    /// Further blocks that will be some staying resident's alone, by its slot.
    pub left_alone: HashMap<Slot, u32>,
    /// How often each block is held by those who leave.
    holds: HashMap<u32, u32>,
}

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

    /// Returns what changes once these residents are gone.
    #[must_use]
    pub fn departure(&self, leaving: &[Slot]) -> Departure {
        let mut holds: HashMap<u32, (u32, usize)> = HashMap::new();
        for &slot in leaving {
            for &block in &self.tables[slot].blocks {
                let (count, holders) = holds.entry(block).or_default();
                *count += 1;
                *holders ^= slot;
            }
        }
        let mut departure = Departure::default();
        for (block, (count, holders)) in holds {
            let entry = &self.blocks[block as usize];
            match entry.ref_count - count {
                0 => departure.freed += 1,
                1 => *departure.left_alone.entry(entry.holders ^ holders).or_default() += 1,
                _ => {}
            }
            departure.holds.insert(block, count);
        }
        departure
    }

    /// Returns the hit a waiting request of `num_tokens` tokens would get after a departure.
    #[must_use]
    pub fn prefix_hit_after(&self, departure: &Departure, slot: Slot, num_tokens: u32) -> PrefixHit {
        let leaving = |block: u32| departure.holds.get(&block).copied().unwrap_or(0);
        self.hit(slot, num_tokens, |block| self.blocks[block as usize].ref_count > leaving(block))
    }

    /// Returns the longest run of cached full blocks, short of the last token: one is always computed.
    fn hit(&self, slot: Slot, num_tokens: u32, in_use: impl Fn(u32) -> bool) -> PrefixHit {
        let mut hit = PrefixHit::default();
        if !self.config.enable_prefix_caching {
            return hit;
        }
        let most = (num_tokens.saturating_sub(1) / self.config.block_size) as usize;
        for &hash in self.tables[slot].hashes.iter().take(most) {
            let Some(block) = self.find(hash) else { break };
            hit.num_tokens += self.config.block_size;
            hit.blocks_in_use += u32::from(in_use(block));
        }
        hit
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
    fn enrol(&mut self, slot: Slot) {
        self.register(slot, [].into());
    }

    fn free(&self) -> u32 {
        self.num_free
    }

    fn held(&self, slot: Slot) -> u32 {
        self.tables[slot].blocks.len() as u32
    }

    fn prefix_hit(&self, slot: Slot, num_tokens: u32) -> PrefixHit {
        self.hit(slot, num_tokens, |block| self.blocks[block as usize].ref_count > 0)
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

#[cfg(test)]
impl BlockCache {
    /// Checks everything that is kept incrementally against a count from scratch.
    pub(super) fn assert_sound(&self) {
        let mut holders = vec![Vec::new(); self.blocks.len()];
        for (slot, table) in self.tables.iter().enumerate() {
            table.blocks.iter().for_each(|&block| holders[block as usize].push(slot));
        }
        for (block, holders) in self.blocks.iter().zip(&holders) {
            assert_eq!(block.ref_count as usize, holders.len());
            assert_eq!(block.holders, holders.iter().fold(0, |xor, slot| xor ^ slot));
        }
        for table in &self.tables {
            let alone = table.blocks.iter().filter(|&&block| holders[block as usize].len() == 1);
            assert_eq!(table.exclusive as usize, alone.count());
        }
        let mut queue = Vec::new();
        let mut at = self.free_head;
        while at != NONE {
            assert_eq!(self.blocks[at as usize].prev, queue.last().copied().unwrap_or(NONE));
            queue.push(at);
            at = self.blocks[at as usize].next;
        }
        assert_eq!(self.free_tail, queue.last().copied().unwrap_or(NONE));
        assert_eq!(self.num_free as usize, queue.len());
        let unheld = holders.iter().filter(|holders| holders.is_empty()).count();
        assert_eq!(queue.len(), unheld, "blocks are conserved: free + held = all");
        let hashed = self.blocks.iter().filter_map(|block| block.hash);
        assert!(hashed.clone().all(|hash| self.by_hash.contains_key(&hash)));
        assert!(self.by_hash.iter().all(|(hash, &first)| self.blocks[first as usize].hash == Some(*hash)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::snapshot::QueuePolicy;

    /// A cache of `usable` blocks of 10 tokens.
    fn cache(usable: u32) -> BlockCache {
        BlockCache::new(SchedulerConfig {
            max_num_batched_tokens: 100,
            max_num_seqs: 10,
            block_size: 10,
            num_kv_blocks: usable + 1,
            max_model_len: 100,
            long_prefill_token_threshold: 0,
            watermark_blocks: 0,
            reserve_full_isl: true,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: QueuePolicy::Fcfs,
            async_scheduling: false,
        })
    }

    fn hit(blocks: u32, blocks_in_use: u32) -> PrefixHit {
        PrefixHit { num_tokens: blocks * 10, blocks_in_use }
    }

    /// Registers a request with these hashes and admits its first `tokens` tokens.
    fn admit(cache: &mut BlockCache, slot: Slot, hashes: &[u64], num_tokens: u32, tokens: u32) -> PrefixHit {
        cache.register(slot, hashes.into());
        let found = cache.prefix_hit(slot, num_tokens);
        cache.admit(slot, found, found.num_tokens + tokens);
        cache.assert_sound();
        found
    }

    #[test]
    fn a_block_can_be_found_once_it_is_allocated_full() {
        let mut cache = cache(10);
        admit(&mut cache, 0, &[1, 2, 3], 35, 25);
        cache.register(1, [1, 2, 3].into());
        assert_eq!(cache.prefix_hit(1, 35), hit(2, 2), "the third block is not full yet");
        cache.extend(0, 30);
        assert_eq!(cache.prefix_hit(1, 35), hit(3, 3));
        assert_eq!(cache.prefix_hit(1, 30), hit(2, 2), "one token is always computed");
        cache.register(1, [1, 9, 3].into());
        assert_eq!(cache.prefix_hit(1, 35), hit(1, 1), "a hit is a prefix");
    }

    #[test]
    fn shared_blocks_are_exclusive_to_nobody_until_one_holder_is_left() {
        let mut cache = cache(10);
        admit(&mut cache, 0, &[1, 2], 25, 25);
        assert_eq!(admit(&mut cache, 1, &[1, 2], 25, 5), hit(2, 2));
        assert_eq!((cache.free(), cache.exclusive(0), cache.exclusive(1)), (6, 1, 1));
        cache.release(0);
        cache.assert_sound();
        assert_eq!((cache.free(), cache.exclusive(1), cache.held(1)), (7, 3, 3));
    }

    #[test]
    fn freed_blocks_are_reused_unhashed_first_then_oldest_and_tail_first() {
        let mut cache = cache(6);
        admit(&mut cache, 0, &[1, 2], 25, 25);
        admit(&mut cache, 1, &[3, 4], 25, 25);
        cache.release(0);
        cache.release(1);
        cache.assert_sound();
        // Two unhashed blocks go first, then 0's second block; its first is still there.
        admit(&mut cache, 2, &[], 30, 30);
        cache.register(3, [1, 2].into());
        assert_eq!(cache.prefix_hit(3, 25), hit(1, 0));
        cache.register(3, [3, 4].into());
        assert_eq!(cache.prefix_hit(3, 25), hit(2, 0));
    }

    #[test]
    fn a_hit_takes_free_blocks_out_of_the_queue() {
        let mut cache = cache(4);
        admit(&mut cache, 0, &[1, 2], 25, 25);
        cache.release(0);
        assert_eq!(admit(&mut cache, 1, &[1, 2], 25, 5), hit(2, 0));
        assert_eq!(cache.free(), 1);
        admit(&mut cache, 2, &[], 10, 10);
        assert_eq!(cache.prefix_hit(1, 25), hit(2, 2), "a held block is not evicted");
    }

    #[test]
    fn blocks_with_one_hash_stand_in_for_each_other() {
        let mut cache = cache(5);
        // Both compute the block: a prompt of exactly two blocks finds only its first.
        admit(&mut cache, 0, &[1, 2], 20, 20);
        assert_eq!(admit(&mut cache, 1, &[1, 2], 20, 10), hit(1, 1));
        cache.release(0);
        cache.register(2, [1, 2].into());
        assert_eq!(cache.prefix_hit(2, 25), hit(2, 1), "the first copy is found, and it is free");
        admit(&mut cache, 3, &[], 30, 30);
        assert_eq!(cache.prefix_hit(2, 25), hit(2, 2), "evicted, the second takes its place");
        cache.assert_sound();
    }

    #[test]
    fn without_prefix_caching_nothing_is_found() {
        let mut cache = cache(10);
        cache.config.enable_prefix_caching = false;
        admit(&mut cache, 0, &[1, 2], 25, 25);
        cache.register(1, [1, 2].into());
        assert_eq!(cache.prefix_hit(1, 25), PrefixHit::default());
        assert!(cache.by_hash.is_empty());
    }
}
