//! What this router sent to one instance and has not settled, and what settled lately.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use crate::domain::{QueryLoad, Timestamp};

/// The most sequences that one request is followed as: a bound on what a hostile `n` can make of a state.
const MOST_SEQUENCES: u32 = 128;

/// One reserved request; its progress moves without the ledger's lock.
#[derive(Debug)]
pub(super) struct Entry {
    /// The id sent upstream.
    pub(super) id: Arc<str>,
    /// Its place in dispatch order.
    pub(super) order: u64,
    /// When it is expected in the engine's queue.
    pub(super) expected: Timestamp,
    /// Its work there.
    pub(super) load: QueryLoad,
    /// The client's cap on output tokens.
    pub(super) max_output_tokens: Option<u32>,
    /// Whether its answer streams: only then progress is seen before its end.
    pub(super) streamed: bool,
    /// How many sequences it is in the engine, at least 1.
    pub(super) sequences: u32,
    /// Microseconds since the epoch; 0: not yet.
    first_token_us: AtomicU64,
    produced_tokens: AtomicU32,
    listed: AtomicBool,
}

impl Entry {
    /// Returns the uncached prompt tokens that it holds until its first token.
    pub(super) fn uncached_tokens(&self) -> u64 {
        u64::from(self.load.prompt_tokens.saturating_sub(self.load.cached_tokens))
    }

    /// Marks the first token; returns whether it was the first call.
    pub(super) fn mark_first_token(&self, at: Timestamp) -> bool {
        let us = at.unix_us().max(1);
        self.first_token_us.compare_exchange(0, us, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether its first token came.
    pub(super) fn has_first_token(&self) -> bool {
        self.first_token_at().is_some()
    }

    /// Returns when its first token came.
    pub(super) fn first_token_at(&self) -> Option<Timestamp> {
        let us = self.first_token_us.load(Ordering::Acquire);
        (us > 0).then(|| Timestamp::from_unix_us(us))
    }

    /// Counts tokens since.
    pub(super) fn add_tokens(&self, n: u32) {
        let add = |tokens: u32| Some(tokens.saturating_add(n));
        let _ = self.produced_tokens.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Returns the tokens counted from its stream, of all answers together.
    pub(super) fn produced_tokens(&self) -> u32 {
        self.produced_tokens.load(Ordering::Acquire)
    }

    /// Returns the mean tokens an answer that were counted from its stream.
    pub(super) fn produced_tokens_each(&self) -> f64 {
        f64::from(self.produced_tokens()) / f64::from(self.sequences)
    }

    /// Marks that a snapshot listed it.
    pub(super) fn mark_listed(&self) {
        self.listed.store(true, Ordering::Release);
    }

    /// Returns whether a snapshot of the engine's present life has listed it.
    pub(super) fn was_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }
}

/// What settled lately: a snapshot may still list it, or list it as a stranger otherwise.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// The id sent upstream.
    pub(super) id: Arc<str>,
    /// How many sequences it was.
    pub(super) sequences: u32,
    /// When it settled.
    pub(super) at: Timestamp,
    /// Tokens that each of them had produced, about.
    pub(super) produced_tokens: u32,
}

/// Settled requests remembered, at most.
const REMEMBERED: usize = 1024;

/// The ledger of one instance.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    live: BTreeMap<u64, Arc<Entry>>,
    settled: VecDeque<Settled>,
    next_order: u64,
}

impl Ledger {
    /// Enters a request.
    pub(super) fn enter(&mut self, id: Arc<str>, sent: Sent) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            id,
            order: self.next_order,
            expected: sent.expected,
            load: sent.load,
            max_output_tokens: sent.max_output_tokens,
            streamed: sent.streamed,
            sequences: sent.choices.clamp(1, MOST_SEQUENCES),
            first_token_us: AtomicU64::new(0),
            produced_tokens: AtomicU32::new(0),
            listed: AtomicBool::new(false),
        });
        self.live.insert(entry.order, Arc::clone(&entry));
        self.next_order += 1;
        entry
    }

    /// Takes a request out whose answers ended with `produced_tokens` each; returns whether it was in.
    pub(super) fn leave(&mut self, entry: &Entry, at: Timestamp, produced_tokens: u32) -> bool {
        let was_in = self.live.remove(&entry.order).is_some();
        if was_in {
            let (id, sequences) = (Arc::clone(&entry.id), entry.sequences);
            self.settled.push_back(Settled { id, sequences, at, produced_tokens });
            while self.settled.len() > REMEMBERED {
                self.settled.pop_front();
            }
        }
        was_in
    }

    /// Returns the requests in flight in dispatch order.
    pub(super) fn live(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.live.values()
    }

    /// Returns what settled lately, oldest first.
    pub(super) fn settled(&self) -> impl Iterator<Item = &Settled> {
        self.settled.iter()
    }

    /// Forgets what settled before `before`.
    pub(super) fn forget_settled(&mut self, before: Timestamp) {
        while self.settled.front().is_some_and(|settled| settled.at < before) {
            self.settled.pop_front();
        }
    }
}

/// How and when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it is expected in the engine's queue.
    pub(super) expected: Timestamp,
    /// Its work there.
    pub(super) load: QueryLoad,
    /// The client's cap on output tokens.
    pub(super) max_output_tokens: Option<u32>,
    /// Whether its answer streams.
    pub(super) streamed: bool,
    /// The answers asked for.
    pub(super) choices: u32,
}
