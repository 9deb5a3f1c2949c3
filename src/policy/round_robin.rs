//! Round robin: every eligible instance in turn (baseline).

use std::sync::atomic::{AtomicUsize, Ordering};

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, RoutingPolicy, registry::parse};
use crate::domain::{Placement, Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "round-robin",
    summary: "every eligible instance in turn",
    build: |options| parse::<Options>(ENTRY.name, options).map(|_| Box::new(RoundRobin::default()) as _),
};

/// Takes candidate `c mod n` of the n eligible, where `c` counts the requests placed.
#[derive(Debug, Default)]
pub struct RoundRobin {
    placed: AtomicUsize,
}

/// Options of [`RoundRobin`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

impl RoutingPolicy for RoundRobin {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let turn = self.placed.load(Ordering::Relaxed).checked_rem(candidates.len())?;
        Some(Choice::single(turn, Reason::RoundRobin))
    }

    fn dispatched(&self, _query: &Query, _placement: &Placement) {
        self.placed.fetch_add(1, Ordering::Relaxed);
    }
}
