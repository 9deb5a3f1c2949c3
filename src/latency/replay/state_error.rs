//! What makes a state impossible to replay, with the place in the document.

use std::fmt;

use crate::engine::EngineError;

/// A place in a scenario, printed as a path such as `snapshot.running[2]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The snapshot's parameters.
    Engine,
    /// A running resident.
    Running(usize),
    /// A waiting resident.
    Waiting(usize),
    /// The waiting requests past the listed ones.
    WaitingBeyond,
    /// The batch in flight.
    InFlight,
    /// A dispatched request.
    Dispatched(usize),
    /// The query.
    Query,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine => f.write_str("snapshot.engine"),
            Self::Running(i) => write!(f, "snapshot.running[{i}]"),
            Self::Waiting(i) => write!(f, "snapshot.waiting[{i}]"),
            Self::WaitingBeyond => f.write_str("snapshot.waiting_beyond"),
            Self::InFlight => f.write_str("snapshot.in_flight"),
            Self::Dispatched(i) => write!(f, "dispatched[{i}]"),
            Self::Query => f.write_str("query"),
        }
    }
}

/// Why a state cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The engine's parameters.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// A prompt has at least one token.
    #[error("prompt_tokens of `{id}` is 0; a prompt has at least one token")]
    EmptyPrompt {
        /// Where.
        place: Place,
        /// The request.
        id: String,
    },
    /// A request must leave room for one more token.
    #[error("`{id}` has {num_tokens} tokens; max_model_len {max_model_len} must exceed that")]
    TooLong {
        /// Where.
        place: Place,
        /// The request.
        id: String,
        /// Its prompt and output tokens.
        num_tokens: u64,
        /// Most tokens of one sequence.
        max_model_len: u32,
    },
    /// More computed than known.
    #[error(
        "computed_tokens {computed_tokens} of `{id}` exceeds its {num_tokens} prompt and output tokens; \
             count output_tokens up to the same batch"
    )]
    ComputedBeyondKnown {
        /// Where.
        place: Place,
        /// The request.
        id: String,
        /// Tokens computed.
        computed_tokens: u32,
        /// Its prompt and output tokens.
        num_tokens: u32,
    },
    /// Nothing says how long a resident goes on.
    #[error("`{id}` has neither a predicted remaining length nor max_tokens; give one of them")]
    NoLength {
        /// Where.
        place: Place,
        /// The request.
        id: String,
    },
    /// Nothing says how long the unlisted requests go on.
    #[error(
        "{requests} requests wait beyond the listed ones, and no listed resident gives a mean length; \
             list at least one of them in waiting"
    )]
    NoMeanLength {
        /// How many.
        requests: u32,
    },
    /// More unlisted requests than a replay takes.
    #[error(
        "{requests} requests wait beyond the listed ones and at most {most} can be \
             replayed; list or drop the rest"
    )]
    TooManyBeyond {
        /// How many.
        requests: u32,
        /// The most.
        most: u32,
    },
    /// A member of the running batch with more tokens than it has computed.
    #[error(
        "`{id}` has {tokens} tokens in flight but computed_tokens {computed_tokens} counts fewer; \
             computed_tokens includes the batch in flight"
    )]
    InFlightBeyondComputed {
        /// The request.
        id: String,
        /// Its tokens in the running batch.
        tokens: u32,
        /// Its computed tokens.
        computed_tokens: u32,
    },
    /// Two residents share an id.
    #[error("`{id}` is listed twice; ids are unique among residents")]
    DuplicateId {
        /// Where the second stands.
        place: Place,
        /// The id.
        id: String,
    },
}

impl StateError {
    /// Returns the place of the offending value.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Self::Engine(_) => Place::Engine,
            Self::EmptyPrompt { place, .. }
            | Self::TooLong { place, .. }
            | Self::ComputedBeyondKnown { place, .. }
            | Self::NoLength { place, .. }
            | Self::DuplicateId { place, .. } => place.clone(),
            Self::NoMeanLength { .. } | Self::TooManyBeyond { .. } => Place::WaitingBeyond,
            Self::InFlightBeyondComputed { .. } => Place::InFlight,
        }
    }
}
