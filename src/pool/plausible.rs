//! What a snapshot must satisfy before decisions rest on it: the document's own rules, a scheduler that
//! can be replayed, the rank it is configured for, and the clock.

use std::{sync::Arc, time::Duration};

use super::PoolConfig;
use crate::{
    domain::{InstanceSpec, Snapshot, Timestamp},
    engine::{self, EngineError},
    wire::{self, snapshot::SnapshotError},
};

/// Why a snapshot is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Implausible {
    /// It breaks a rule of its schema.
    #[error("{0}")]
    Document(Arc<SnapshotError>),
    /// Its scheduler's rules are not known here.
    #[error("engine.scheduler: {0}")]
    Scheduler(EngineError),
    /// It is of another data-parallel rank than configured.
    #[error("it is of dp_rank {told}, the instance is configured as {configured}")]
    Rank {
        /// The rank it carries.
        told: u32,
        /// The configured one.
        configured: u32,
    },
    /// It was captured later than it came.
    #[error("it was captured {ahead_s:.3} s ahead of its receipt; check the hosts' clocks")]
    Ahead {
        /// By how much, seconds.
        ahead_s: f64,
    },
    /// It was captured too long before it came to be of use.
    #[error(
        "it was captured {behind_s:.3} s before its receipt, and a state older than {stale_after_s} s \
         (pool.stale_after_ms) is not used; the hosts' clocks disagree or the publisher is stuck"
    )]
    Behind {
        /// By how much, seconds.
        behind_s: f64,
        /// The most, seconds.
        stale_after_s: f64,
    },
}

impl Implausible {
    /// Returns the label used in status and logs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Document(_) => "document",
            Self::Scheduler(_) => "scheduler",
            Self::Rank { .. } => "rank",
            Self::Ahead { .. } => "clock-ahead",
            Self::Behind { .. } => "clock-behind",
        }
    }
}

/// Checks a snapshot that came at `received`.
pub(super) fn check(
    snapshot: &Snapshot,
    spec: &InstanceSpec,
    received: Timestamp,
    config: &PoolConfig,
) -> Result<(), Implausible> {
    wire::snapshot::validate(snapshot).map_err(|error| Implausible::Document(Arc::new(error)))?;
    engine::scheduler(&snapshot.engine.scheduler).map_err(Implausible::Scheduler)?;
    if snapshot.dp_rank != spec.dp_rank {
        return Err(Implausible::Rank { told: snapshot.dp_rank, configured: spec.dp_rank });
    }
    let captured = snapshot.captured_unix_us;
    if captured > received.after(Duration::from_millis(config.max_clock_lead_ms)) {
        return Err(Implausible::Ahead { ahead_s: captured.since(received).as_secs_f64() });
    }
    let (behind, stale_after) = (received.since(captured), Duration::from_millis(config.stale_after_ms));
    if behind > stale_after {
        let (behind_s, stale_after_s) = (behind.as_secs_f64(), stale_after.as_secs_f64());
        return Err(Implausible::Behind { behind_s, stale_after_s });
    }
    Ok(())
}
