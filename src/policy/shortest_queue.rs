//! Shortest queue: fewest residents, waiting and running together (baseline).

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, PolicyEntry, RoutingPolicy, registry::parse, state::residents};
use crate::domain::{Query, Reason};

/// The registry's line.
pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "shortest-queue",
    summary: "fewest waiting and running requests",
    build: |options| parse::<Options>(ENTRY.name, options).map(|_| Box::new(ShortestQueue) as _),
};

/// Takes the fewest residents, the first among equals.
///
/// Where an instance's count is unknown, this router's own outstanding requests stand in for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestQueue;

/// Options of [`ShortestQueue`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {}

impl RoutingPolicy for ShortestQueue {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let shortest = (0..candidates.len()).min_by_key(|&i| residents(candidates.view(i)))?;
        Some(Choice::single(shortest, Reason::ShortestQueue))
    }
}
