//! Which prompt blocks this router sent where: a guess at the engines' prefix caches from placements alone.
//!
//! Blocks are hashed with all before them, so the hashes that an instance was sent are a prefix tree whose
//! every path is a run from a prompt's start.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The blocks sent to each instance, by pool position; the least recently sent make room.
#[derive(Debug)]
pub(super) struct PrefixIndex {
    most_blocks: usize,
    instances: Mutex<HashMap<usize, Sent>>,
}

/// One instance's blocks and when each was last sent.
#[derive(Debug, Default)]
struct Sent {
    turn: u64,
    last: HashMap<u64, u64>,
    by_turn: BTreeMap<u64, u64>,
}

impl PrefixIndex {
    /// Makes an empty one that keeps so many blocks an instance.
    pub(super) fn new(most_blocks: usize) -> Self {
        Self { most_blocks, instances: Mutex::default() }
    }

    /// Remembers a prompt's blocks for an instance.
    pub(super) fn placed(&self, instance: usize, prefix: &[u64]) {
        let mut instances = self.lock();
        let sent = instances.entry(instance).or_default();
        // The end of a prompt first: ends are older than the beginnings that they need, and go before them.
        for &block in prefix[..prefix.len().min(self.most_blocks)].iter().rev() {
            sent.touch(block);
        }
        while sent.last.len() > self.most_blocks
            && let Some((_, oldest)) = sent.by_turn.pop_first()
        {
            sent.last.remove(&oldest);
        }
    }

    /// Returns how many blocks from the prompt's start the instance was sent and still may have.
    pub(super) fn matched_blocks(&self, instance: usize, prefix: &[u64]) -> usize {
        let instances = self.lock();
        let Some(sent) = instances.get(&instance) else { return 0 };
        prefix.iter().take_while(|block| sent.last.contains_key(block)).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Sent>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sent {
    fn touch(&mut self, block: u64) {
        self.turn += 1;
        if let Some(before) = self.last.insert(block, self.turn) {
            self.by_turn.remove(&before);
        }
        self.by_turn.insert(self.turn, block);
    }
}
