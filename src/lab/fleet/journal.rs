//! What reached a run's router and what it decided, so that another mouth can be given the very same.

use std::{sync::Arc, time::Duration};

use rand_chacha::ChaCha8Rng;

use super::clock::instant;
use crate::domain::{Decision, InstanceSpec, ModelSpec, Snapshot, Timestamp};

/// One router's run, from outside.
#[derive(Clone, Debug)]
pub struct Journal {
    /// The models as the router was configured with them, priors included.
    pub models: Vec<ModelSpec>,
    /// The instances as the router was configured with them.
    pub instances: Vec<InstanceSpec>,
    /// The generator of the router's draws before its first decision.
    pub draws: ChaCha8Rng,
    /// What happened, in order.
    pub entries: Vec<Entry>,
}

/// Something that reached the router or that it did.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What.
    pub note: Note,
}

/// What happened. Requests go by their number in order of arrival, attempts from 1.
#[derive(Clone, Debug)]
pub enum Note {
    /// An instance's state came; its residents go by `request.attempt`.
    Snapshot {
        /// The instance's position in the pool.
        instance: usize,
        /// The state.
        snapshot: Arc<Snapshot>,
    },
    /// A request came.
    Arrival {
        /// Its number.
        request: usize,
        /// Its prompt tokens, the same under every model.
        prompt_tokens: u32,
        /// Its cap on output tokens; absent: none.
        max_output_tokens: Option<u32>,
        /// Its TTFT target; absent: none.
        ttft_target: Option<Duration>,
    },
    /// A request was decided on.
    Decision {
        /// Its number.
        request: usize,
        /// Which attempt at it.
        attempt: u32,
        /// The table; absent: no instance could take it.
        decision: Option<Box<Decision>>,
    },
    /// A token of an answer came. Of an instance that the router has snapshots of, the first and the last one of
    /// each answer are kept.
    Token {
        /// The request's number.
        request: usize,
        /// What the engine says it used, with the last token.
        last: Option<Usage>,
    },
    /// An attempt failed.
    Failure {
        /// The request's number.
        request: usize,
        /// Whether another attempt follows.
        again: bool,
    },
}

/// Tokens of a whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// In its prompt.
    pub prompt_tokens: u32,
    /// Of these, found cached.
    pub cached_tokens: u32,
    /// In its answer.
    pub output_tokens: u32,
}

/// The entries of a run, where they are kept.
#[derive(Default)]
pub(super) struct Keeper(Option<Vec<Entry>>);

impl Keeper {
    /// Keeps entries from here on.
    pub(super) fn start(&mut self) {
        self.0 = Some(Vec::new());
    }

    /// Adds an entry, where they are kept.
    pub(super) fn note(&mut self, at_us: u64, note: impl FnOnce() -> Note) {
        if let Some(entries) = &mut self.0 {
            entries.push(Entry { at: instant(at_us), note: note() });
        }
    }

    /// Hands the entries over.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        self.0.take().unwrap_or_default()
    }
}
