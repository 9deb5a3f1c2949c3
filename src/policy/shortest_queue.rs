//! Shortest queue: fewest residents, waiting and running together (baseline).

use rand::RngCore;
use serde::Deserialize;

use super::{Candidates, Choice, RoutingPolicy};
use crate::domain::{Query, Reason};

/// Takes the fewest residents, the first among equals.
///
/// Where an instance's count is unknown, this router's own outstanding requests stand in for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortestQueue;

/// Options of [`ShortestQueue`]: none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {}

impl RoutingPolicy for ShortestQueue {
    fn name(&self) -> &'static str {
        "shortest-queue"
    }

    fn choose(&self, _query: &Query, candidates: &dyn Candidates, _rng: &mut dyn RngCore) -> Option<Choice> {
        let residents = |i: &usize| {
            let view = candidates.view(*i);
            view.resident_requests.unwrap_or(view.load.requests)
        };
        let shortest = (0..candidates.len()).min_by_key(residents)?;
        Some(Choice::single(shortest, Reason::ShortestQueue))
    }
}
