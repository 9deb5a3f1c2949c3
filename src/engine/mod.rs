//! How a serving engine forms its batches, without clock or IO: what estimates replay, the simulated
//! engine serves by and the lab runs.
//!
//! To add a scheduler: one file with its rules and a [`SchedulerEntry`], one line in [`SCHEDULERS`].

mod batch;
mod batch_time;
mod block_cache;
mod config;
mod driver;
mod kv_blocks;
mod published;
mod request;
mod state;
mod vllm;

#[cfg(test)]
mod tests;

pub use batch::{Batch, Lead, Member, Origin};
pub use batch_time::{
    ATTOSECONDS_PER_S, ATTOSECONDS_PER_US, BatchTime, BatchWork, DecodeRun, attoseconds, seconds,
};
pub use block_cache::{BlockCache, Departure};
pub use config::SchedulerConfig;
pub use driver::{Admission, BatchMember, BatchShape, Counters, Engine, Event, NewRequest};
pub use kv_blocks::{BlockCount, BlockCounts, KvBlocks, PrefixHit};
pub use published::SnapshotMeta;
pub use request::{Request, RequestStatus, Slot};
pub use state::{Crowd, EngineState};

use serde_json::Value;

/// Forms the batches of one engine.
pub trait BatchScheduler<K: KvBlocks>: Send {
    /// Forms the next batch from the resident set: moves admitted and preempted requests between the
    /// lists, takes and frees blocks, and fills `batch`. Computed tokens move on when it is applied.
    fn form(&mut self, state: &mut EngineState<K>, batch: &mut Batch);

    /// Forms the next batch as [`Self::form`] would, told what its lead gets, and fills `batch` with the
    /// members behind the lead. Returns false, with nothing changed but `batch`, where someone would be
    /// preempted or where it cannot do with a lead; then every request must be told and `form` decides.
    fn form_behind_lead(&mut self, _state: &mut EngineState<K>, _batch: &mut Batch, _lead: Lead) -> bool {
        false
    }

    /// Returns what a snapshot must carry beyond the residents; vLLM needs nothing.
    fn scheduler_state(&self) -> Option<Value> {
        None
    }
}

/// Makes a scheduler from its parameters and the `scheduler_state` of a snapshot.
pub type Construct<K> =
    fn(&SchedulerConfig, Option<&Value>) -> Result<Box<dyn BatchScheduler<K>>, EngineError>;

/// One registered scheduler.
#[derive(Clone, Copy)]
pub struct SchedulerEntry {
    /// The name snapshots and configuration use.
    pub name: &'static str,
    /// One line for listings.
    pub summary: &'static str,
    /// Makes it over counted blocks, for estimates.
    pub counted: Construct<BlockCounts>,
    /// Makes it over hashed blocks, for the simulated engine and the lab.
    pub cached: Construct<BlockCache>,
}

/// Every scheduler, sorted by name.
pub const SCHEDULERS: &[SchedulerEntry] = &[vllm::ENTRY];

/// Finds a registered scheduler.
///
/// # Errors
/// [`EngineError::UnknownScheduler`] names the registered ones.
pub fn scheduler(name: &str) -> Result<&'static SchedulerEntry, EngineError> {
    SCHEDULERS.iter().find(|entry| entry.name == name).ok_or_else(|| EngineError::UnknownScheduler {
        name: name.to_owned(),
        known: SCHEDULERS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}

/// What is wrong with an engine's parameters or a request given to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// No scheduler has this name.
    #[error("scheduler `{name}` is not known; registered: {known}")]
    UnknownScheduler {
        /// The name asked for.
        name: String,
        /// The registered names.
        known: String,
    },
    /// Blocks hold at least one token.
    #[error("block_size is 0; a KV block holds at least one token")]
    BlockSizeZero,
    /// One sequence of full length would not fit.
    #[error(
        "num_kv_blocks {num_kv_blocks} × block_size {block_size} holds less than max_model_len {max_model_len}; \
         raise num_kv_blocks or lower max_model_len"
    )]
    KvTooSmall {
        /// Blocks, the null block included.
        num_kv_blocks: u32,
        /// Tokens in a block.
        block_size: u32,
        /// Most tokens of one sequence.
        max_model_len: u32,
    },
    /// Unsplit prompts must fit one step.
    #[error(
        "max_num_batched_tokens {max_num_batched_tokens} is less than max_model_len {max_model_len} and \
         enable_chunked_prefill is false; allow chunks or raise the budget"
    )]
    BudgetUnderModelLen {
        /// Token budget of one step.
        max_num_batched_tokens: u32,
        /// Most tokens of one sequence.
        max_model_len: u32,
    },
    /// A prompt has at least one token.
    #[error("request `{id}` has no prompt token; send at least one")]
    EmptyPrompt {
        /// The request.
        id: String,
    },
    /// A request must leave room for one output token.
    #[error("request `{id}` has {num_tokens} tokens; max_model_len {max_model_len} must exceed that")]
    TooLong {
        /// The request.
        id: String,
        /// Its tokens.
        num_tokens: u32,
        /// Most tokens of one sequence.
        max_model_len: u32,
    },
    /// Ids are unique among residents.
    #[error("request `{id}` is already resident; use a fresh id for each attempt")]
    DuplicateId {
        /// The request.
        id: String,
    },
}
