//! Live state of the instances: the newest snapshot, the ledger of what this router sent, and health.
//!
//! Time is an argument. Each instance has its own small lock; totals and snapshots are read without any.

mod answers;
mod config;
mod health;
mod ledger;
mod lengths;
mod live;
mod merge;
mod plausible;
mod rebuild;
mod remaining;
mod reservation;
mod slot;
mod steps;
#[cfg(test)]
mod tests;

pub use config::PoolConfig;
pub use health::Breaker;
pub use live::{Pool, ReserveRequest};
pub use plausible::Implausible;
pub use reservation::Reservation;

use crate::domain::{InstanceId, Outcome, Timestamp};

/// Hears of each reservation's end, exactly once.
pub trait SettleSink: Send + Sync {
    /// Takes the realised side of an attempt. Called wherever the reservation ends: must not block.
    fn settled(&self, outcome: &Outcome);
}

/// A sink that nobody listens behind.
#[derive(Clone, Copy, Debug)]
pub struct NoSink;

impl SettleSink for NoSink {
    fn settled(&self, _outcome: &Outcome) {}
}

/// How the snapshot source of one instance fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// It said last that nothing is coming.
    pub lost: bool,
    /// Capture of the newest snapshot; absent: none came yet.
    pub captured: Option<Timestamp>,
    /// Snapshots taken.
    pub accepted: u64,
    /// Snapshots older than the one at hand.
    pub ignored: u64,
    /// Snapshots refused as implausible.
    pub refused: u64,
    /// The [`Implausible::label`] of the last one, where it was refused; absent: it was not.
    pub refusal: Option<&'static str>,
}

/// What the pool refuses.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PoolError {
    /// An option that must be positive is 0.
    #[error("pool.{key} is 0; it must be at least 1")]
    Config {
        /// The key.
        key: &'static str,
    },
    /// An instance names a model that the pool has not.
    #[error("instance `{instance}` names model number {model}, but the pool has {models}")]
    UnknownModel {
        /// The instance.
        instance: InstanceId,
        /// The index it names.
        model: usize,
        /// How many models there are.
        models: usize,
    },
    /// Two instances or two models share a name.
    #[error("{kind} `{name}` is listed twice; give each its own id")]
    Duplicate {
        /// `instance` or `model`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A position outside the pool.
    #[error("no instance at position {position}; the pool has {len}")]
    NoInstance {
        /// The position.
        position: usize,
        /// How many there are.
        len: usize,
    },
    /// A snapshot contradicts itself, the configuration or the clock.
    #[error("snapshot {seq} of instance `{instance}` refused: {why}")]
    Implausible {
        /// The instance it came for.
        instance: InstanceId,
        /// Its sequence number.
        seq: u64,
        /// What is wrong.
        why: Implausible,
    },
}
