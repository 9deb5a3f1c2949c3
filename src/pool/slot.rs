//! One instance's live state behind its own lock and swaps.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;

use super::{
    PoolConfig, SourceStatus, answers,
    health::Health,
    ledger::{Entry, Ledger, Sent},
    merge, rebuild,
    steps::Steps,
};
use crate::domain::{Basis, BasisSource, InstanceSpec, Load, ModelSpec, Snapshot, Timestamp};

/// How long after a capture what settled before it is still looked for among the residents: an aborted
/// request may linger for a step or two.
const LINGER_US: u64 = 1_000_000;

/// One instance.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) spec: Arc<InstanceSpec>,
    pub(super) health: Health,
    latest: ArcSwapOption<Snapshot>,
    derived: ArcSwapOption<Derived>,
    ledger: Mutex<Ledger>,
    steps: Steps,
    requests: AtomicU32,
    uncached_tokens: AtomicU64,
    /// Moves at each reserve, first token and settle.
    version: AtomicU64,
    /// Moves when a request that a snapshot lists settles.
    listed_version: AtomicU64,
    pub(super) source: Source,
}

/// How an instance's source fares.
#[derive(Debug, Default)]
pub(super) struct Source {
    lost: AtomicBool,
    accepted: AtomicU64,
    ignored: AtomicU64,
    refused: AtomicU64,
    refusal: Mutex<Option<&'static str>>,
}

impl Source {
    fn refusal(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A basis with what it was made of.
#[derive(Debug)]
struct Derived {
    basis: Basis,
    residents: Option<u32>,
    /// The published snapshot behind it; absent: rebuilt from the ledger.
    from: Option<Arc<Snapshot>>,
    version: u64,
    listed_version: u64,
    built: Timestamp,
}

/// What a basis depends on besides the instance's own state.
pub(super) struct Context<'a> {
    pub(super) config: &'a PoolConfig,
    pub(super) model: &'a ModelSpec,
    /// Output tokens expected of a stranger with that many prompt tokens.
    pub(super) expected_tokens: &'a dyn Fn(u32) -> f64,
    pub(super) now: Timestamp,
}

impl Slot {
    pub(super) fn new(spec: InstanceSpec) -> Self {
        Self {
            spec: Arc::new(spec),
            health: Health::default(),
            latest: ArcSwapOption::empty(),
            derived: ArcSwapOption::empty(),
            ledger: Mutex::default(),
            steps: Steps::default(),
            requests: AtomicU32::new(0),
            uncached_tokens: AtomicU64::new(0),
            version: AtomicU64::new(0),
            listed_version: AtomicU64::new(0),
            source: Source::default(),
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

    pub(super) fn first_token(&self, entry: &Entry, now: Timestamp) {
        if entry.mark_first_token(now) {
            self.uncached_tokens.fetch_sub(entry.uncached_tokens(), Ordering::AcqRel);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts output tokens that reached the router at `now`.
    pub(super) fn tokens(&self, entry: &Entry, n: u32, now: Timestamp) {
        entry.add_tokens(n);
        let egress_us = (self.spec.overhead.egress_s * 1e6) as u64;
        self.steps.note(Timestamp::from_unix_us(now.unix_us().saturating_sub(egress_us)));
    }

    pub(super) fn leave(&self, entry: &Entry, now: Timestamp, produced_tokens: u32) {
        let mut ledger = self.ledger();
        if !ledger.leave(entry, now, produced_tokens) {
            return;
        }
        self.requests.fetch_sub(1, Ordering::AcqRel);
        if entry.mark_first_token(now) {
            self.uncached_tokens.fetch_sub(entry.uncached_tokens(), Ordering::AcqRel);
        }
        if entry.was_listed() {
            self.listed_version.fetch_add(1, Ordering::AcqRel);
        }
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a plausible snapshot unless it is older than the one at hand, by the order of one engine
    /// life: (seq, capture). A new nonce is a new life.
    pub(super) fn accept(&self, snapshot: Snapshot, context: &Context<'_>) {
        let mut ledger = self.ledger();
        self.source.lost.store(false, Ordering::Release);
        *self.source.refusal() = None;
        let order = |s: &Snapshot| (s.seq, s.captured_unix_us);
        let older = |held: &Arc<Snapshot>| held.nonce == snapshot.nonce && order(&snapshot) < order(held);
        if self.latest.load().as_ref().is_some_and(older) {
            self.source.ignored.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.source.accepted.fetch_add(1, Ordering::Relaxed);
        let settled_before = snapshot.captured_unix_us.unix_us().saturating_sub(LINGER_US);
        ledger.forget_settled(Timestamp::from_unix_us(settled_before));
        let snapshot = Arc::new(snapshot);
        let remaining = merge::predicted_remaining(&snapshot, &ledger, context.expected_tokens);
        for entry in ledger.live().filter(|e| answers::listed(&e.id, e.sequences, &remaining) > 0) {
            entry.mark_listed();
        }
        let derived = self.derive(&ledger, &snapshot, Arc::new(remaining), context);
        self.latest.store(Some(snapshot));
        self.derived.store(Some(Arc::new(derived)));
    }

    pub(super) fn refuse(&self, why: &'static str) {
        self.source.refused.fetch_add(1, Ordering::Relaxed);
        *self.source.refusal() = Some(why);
    }

    pub(super) fn lose_source(&self) {
        self.source.lost.store(true, Ordering::Release);
    }

    /// Returns the state to replay from and the count of residents, where known.
    ///
    /// What was made before serves again unless a request came, went or got its first token, a snapshot
    /// came, or (for a state from the ledger) the period has passed.
    pub(super) fn basis(&self, context: &Context<'_>) -> (Basis, Option<u32>) {
        let latest = self.latest.load_full().filter(|snapshot| {
            let stale_after = Duration::from_millis(context.config.stale_after_ms);
            context.now.since(snapshot.captured_unix_us) <= stale_after
        });
        if let Some(derived) = &*self.derived.load()
            && self.still_holds(derived, latest.as_ref(), context)
        {
            return (derived.basis.clone(), derived.residents);
        }
        let ledger = self.ledger();
        let derived = match latest {
            Some(snapshot) => {
                let remaining = self.kept_remaining(&snapshot).unwrap_or_else(|| {
                    Arc::new(merge::predicted_remaining(&snapshot, &ledger, context.expected_tokens))
                });
                self.derive(&ledger, &snapshot, remaining, context)
            }
            None => self.rebuild(&ledger, context),
        };
        let answer = (derived.basis.clone(), derived.residents);
        self.derived.store(Some(Arc::new(derived)));
        answer
    }

    fn still_holds(&self, derived: &Derived, latest: Option<&Arc<Snapshot>>, context: &Context<'_>) -> bool {
        let same_version = derived.version == self.version.load(Ordering::Acquire);
        match (&derived.from, latest) {
            (Some(from), Some(latest)) => same_version && Arc::ptr_eq(from, latest),
            (None, None) => {
                let period = Duration::from_millis(context.config.ledger_period_ms);
                same_version && derived.built <= context.now && context.now.since(derived.built) < period
            }
            _ => false,
        }
    }

    fn kept_remaining(&self, snapshot: &Arc<Snapshot>) -> Option<Arc<HashMap<String, u32>>> {
        let derived = self.derived.load();
        let derived = derived.as_ref()?;
        let same = derived.from.as_ref().is_some_and(|from| Arc::ptr_eq(from, snapshot))
            && derived.listed_version == self.listed_version.load(Ordering::Acquire);
        same.then(|| Arc::clone(&derived.basis.predicted_remaining))
    }

    /// Makes the basis of a published snapshot. The caller holds the ledger's lock.
    fn derive(
        &self,
        ledger: &Ledger,
        snapshot: &Arc<Snapshot>,
        remaining: Arc<HashMap<String, u32>>,
        context: &Context<'_>,
    ) -> Derived {
        let grace = Duration::from_millis(context.config.transit_grace_ms);
        let (version, listed_version) = self.versions();
        let dispatched = merge::dispatched_since(snapshot, &remaining, ledger, grace);
        Derived {
            residents: Some(merge::residents(snapshot, &remaining, ledger, dispatched.len())),
            basis: Basis {
                source: BasisSource::Snapshot,
                snapshot: Arc::clone(snapshot),
                predicted_remaining: remaining,
                dispatched,
            },
            from: Some(Arc::clone(snapshot)),
            version,
            listed_version,
            built: context.now,
        }
    }

    /// Makes the basis from the ledger alone; others' residents stay unknown, and so does their count.
    fn rebuild(&self, ledger: &Ledger, context: &Context<'_>) -> Derived {
        let (version, listed_version) = self.versions();
        let told = self.latest.load_full();
        let engine = told.map_or_else(
            || rebuild::assumed_engine(context.model, context.config),
            |snapshot| snapshot.engine.clone(),
        );
        let entries: Vec<Arc<Entry>> = ledger.live().cloned().collect();
        let known = rebuild::Known {
            entries: &entries,
            step_ends: &self.steps.ends(),
            now: context.now,
            reach: Duration::from_millis(context.config.stale_after_ms),
        };
        let basis = rebuild::from_ledger(&self.spec, engine, &known);
        Derived { basis, residents: None, from: None, version, listed_version, built: context.now }
    }

    fn versions(&self) -> (u64, u64) {
        (self.version.load(Ordering::Acquire), self.listed_version.load(Ordering::Acquire))
    }

    pub(super) fn source_status(&self) -> SourceStatus {
        SourceStatus {
            lost: self.source.lost.load(Ordering::Acquire),
            captured: self.latest.load().as_ref().map(|snapshot| snapshot.captured_unix_us),
            accepted: self.source.accepted.load(Ordering::Relaxed),
            ignored: self.source.ignored.load(Ordering::Relaxed),
            refused: self.source.refused.load(Ordering::Relaxed),
            refusal: *self.source.refusal(),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
