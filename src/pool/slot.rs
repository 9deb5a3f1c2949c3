//! One instance's live state behind its own lock and swaps.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use arc_swap::ArcSwapOption;

use super::{
    health::Health,
    ledger::{Entry, Ledger, Sent},
};
use crate::domain::{InstanceSpec, Load, Snapshot, Timestamp};

/// One instance.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) spec: Arc<InstanceSpec>,
    pub(super) health: Health,
    latest: ArcSwapOption<Snapshot>,
    ledger: Mutex<Ledger>,
    requests: AtomicU32,
    uncached_tokens: AtomicU64,
    /// Moves at each reserve, first token and settle.
    version: AtomicU64,
}

impl Slot {
    pub(super) fn new(spec: InstanceSpec) -> Self {
        Self {
            spec: Arc::new(spec),
            health: Health::default(),
            latest: ArcSwapOption::empty(),
            ledger: Mutex::default(),
            requests: AtomicU32::new(0),
            uncached_tokens: AtomicU64::new(0),
            version: AtomicU64::new(0),
        }
    }

    pub(super) fn load(&self) -> Load {
        Load {
            requests: self.requests.load(Ordering::Acquire),
            uncached_prefill_tokens: self.uncached_tokens.load(Ordering::Acquire),
        }
    }

    pub(super) fn enter(&self, id: Arc<str>, sent: Sent) -> Arc<Entry> {
        let mut ledger = self.ledger();
        let entry = ledger.enter(id, sent);
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.uncached_tokens.fetch_add(entry.uncached_tokens(), Ordering::AcqRel);
        self.version.fetch_add(1, Ordering::AcqRel);
        entry
    }

    pub(super) fn first_token(&self, entry: &Entry) {
        if entry.mark_first_token() {
            self.uncached_tokens.fetch_sub(entry.uncached_tokens(), Ordering::AcqRel);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn leave(&self, entry: &Entry, now: Timestamp) {
        let mut ledger = self.ledger();
        if !ledger.leave(entry, now) {
            return;
        }
        self.requests.fetch_sub(1, Ordering::AcqRel);
        if entry.mark_first_token() {
            self.uncached_tokens.fetch_sub(entry.uncached_tokens(), Ordering::AcqRel);
        }
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
