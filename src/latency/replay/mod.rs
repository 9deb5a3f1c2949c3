//! Replay of an instance's state until a query's token: the scheduler's own rules, step by step, with
//! eq. 12 for each step's time (eq. 9–11).
//!
//! [`Start`] checks a [`Scenario`] and lays out its residents; [`plain`] runs it one step at a time and is
//! the reference; [`fast`] gives the same and costs what happens, not how long it lasts.
//! Time is an `i128` of attoseconds from the capture.
//!
//! With asynchronous scheduling the batch behind the one in flight was formed when that one began, and a
//! snapshot takes it back: its admissions stand in `waiting` beside requests that joined later. A replay
//! cannot tell them apart and puts such a late one into that batch, one formation too early. The error
//! is at most one step for what joined during the step in flight, and gone at the next snapshot.

mod decoders;
mod fast;
mod plain;
mod start;
mod state_error;

pub use fast::{Scratch, Scratches, fast};
pub use plain::{Ended, Goal, Replayed, Step, plain};
pub use start::{Name, Names, Start};
pub use state_error::{Place, StateError};

use std::collections::HashMap;

use crate::{
    domain::{Dispatched, QueryLoad, Snapshot, Timestamp},
    engine::BatchTime,
};

/// Steps after which an offline replay gives up.
pub const STEP_LIMIT: u64 = 1_000_000;

/// Most waiting requests that `waiting_beyond` may sum up; guards a replay that admits them all.
pub const MAX_BEYOND: u32 = 1_000_000;

/// Everything a replay rests on (eq. 9).
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// The engine's state at its capture.
    pub snapshot: &'a Snapshot,
    /// Predicted remaining output tokens by resident id.
    pub predicted_remaining: &'a HashMap<String, u32>,
    /// Requests dispatched since the capture; those the snapshot lists already are ignored.
    pub dispatched: &'a [Dispatched],
    /// The query.
    pub query: QueryLoad,
    /// When the query joins the engine's queue.
    pub now: Timestamp,
    /// Eq. 12.
    pub batch_time: BatchTime,
}
