//! An estimator with one of its senses switched off, to show what that sense is worth.

use std::sync::Arc;

use crate::{
    domain::{Basis, Estimate, Horizon, InstanceView, QueryLoad, Snapshot, Timestamp},
    lab::SnapshotRule,
    latency::Estimator,
};

/// Hides from an estimator how old a snapshot is, or what was sent since. Loads that policies read themselves stay
/// as they are, so that only routers that decide by estimates are worth comparing under it.
pub(super) struct Handicapped {
    pub(super) inner: Box<dyn Estimator>,
    pub(super) rule: SnapshotRule,
}

impl Handicapped {
    /// Returns the state as the estimator may see it.
    fn seen(&self, basis: &Basis, now: Timestamp) -> Basis {
        let mut seen = basis.clone();
        if !self.rule.ledger {
            seen.dispatched = Arc::from([]);
        }
        if !self.rule.roll_forward {
            let snapshot = Arc::make_mut(&mut seen.snapshot);
            let age = now.since(snapshot.captured_unix_us);
            snapshot.captured_unix_us = now;
            later(snapshot, age);
            // What was sent since has arrived in the state that passes for the present.
            seen.dispatched = seen.dispatched.iter().cloned().map(|d| at_once(d, now)).collect();
        }
        seen
    }
}

fn later(snapshot: &mut Snapshot, by: std::time::Duration) {
    if let Some(in_flight) = &mut snapshot.in_flight {
        in_flight.started_unix_us = in_flight.started_unix_us.after(by);
    }
}

fn at_once(dispatched: crate::domain::Dispatched, now: Timestamp) -> crate::domain::Dispatched {
    crate::domain::Dispatched { at_unix_us: dispatched.at_unix_us.min(now), ..dispatched }
}

impl Estimator for Handicapped {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn estimate(&self, load: QueryLoad, view: &InstanceView, now: Timestamp, horizon: Horizon) -> Estimate {
        let basis = view.basis.as_ref().map(|basis| self.seen(basis, now));
        self.inner.estimate(load, &InstanceView { basis, ..view.clone() }, now, horizon)
    }
}
