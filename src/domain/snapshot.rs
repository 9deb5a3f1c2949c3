//! One instance's state as it publishes it (schema `bear.snapshot.v1`).

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// The schema name every document carries.
pub const SCHEMA: &str = "bear.snapshot.v1";

/// The engine's queueing policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// By (priority, arrival order), smaller first.
    Priority,
}

/// The scheduler's parameters under vLLM's own names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineParams {
    /// The scheduler's registered name, such as `vllm-v1`.
    pub scheduler: String,
    /// Token budget of one step.
    pub max_num_batched_tokens: u32,
    /// Most requests running at once.
    pub max_num_seqs: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks, the engine's null block included.
    pub num_kv_blocks: u32,
    /// Most tokens of one sequence.
    pub max_model_len: u32,
    /// Cap on one prefill's tokens in a step; 0: none.
    #[serde(default)]
    pub long_prefill_token_threshold: u32,
    /// Free blocks to keep when admitting while something runs.
    #[serde(default)]
    pub watermark_blocks: u32,
    /// Admit only when the whole sequence's blocks are free.
    #[serde(default = "yes")]
    pub reserve_full_isl: bool,
    /// Split prompts over steps.
    #[serde(default = "yes")]
    pub enable_chunked_prefill: bool,
    /// Reuse cached prefix blocks.
    #[serde(default = "yes")]
    pub enable_prefix_caching: bool,
    /// Queueing policy.
    #[serde(default)]
    pub policy: QueuePolicy,
    /// Form step i+1 while step i runs.
    #[serde(default = "yes")]
    pub async_scheduling: bool,
}

const fn yes() -> bool {
    true
}

/// The batch running at the capture. Its tokens are already in the members' `computed_tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlight {
    /// When it started.
    pub started_unix_us: Timestamp,
    /// Tokens by resident id.
    pub tokens: std::collections::BTreeMap<String, u32>,
}

/// One waiting or running request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resident {
    /// The id as the router gave it; what the engine adds is cut off.
    pub id: String,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Tokens whose KV is computed, the batch in flight included.
    pub computed_tokens: u32,
    /// Tokens that the cache would spare it if it were admitted at the capture; while waiting only.
    #[serde(default)]
    pub cached_tokens: u32,
    /// Blocks of that hit which running requests hold.
    #[serde(default)]
    pub cached_blocks_in_use: u32,
    /// Output tokens so far.
    pub output_tokens: u32,
    /// The client's cap; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// KV blocks held.
    #[serde(default)]
    pub kv_blocks: u32,
    /// Of these, blocks nobody else holds; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_blocks_exclusive: Option<u32>,
    /// Priority; smaller is sooner.
    #[serde(default)]
    pub priority: i32,
}

/// Waiting requests past the listed ones, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WaitingBeyond {
    /// How many.
    pub requests: u32,
    /// Their prefill tokens together.
    pub prefill_tokens: u64,
}

/// The most waiting requests a document lists; the rest are summed in [`WaitingBeyond`].
pub const MAX_LISTED_WAITING: usize = 512;

/// One instance's state at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The publisher's name for itself.
    pub instance: String,
    /// Data-parallel rank.
    #[serde(default)]
    pub dp_rank: u32,
    /// Changes when the engine restarts.
    #[serde(default)]
    pub nonce: String,
    /// Counts the engine's steps.
    pub seq: u64,
    /// When it was captured, on the engine's clock.
    pub captured_unix_us: Timestamp,
    /// The scheduler's parameters.
    pub engine: EngineParams,
    /// Free KV blocks, cached but unheld ones included.
    pub free_kv_blocks: u32,
    /// The batch running at the capture.
    #[serde(default)]
    pub in_flight: Option<InFlight>,
    /// Running requests in the scheduler's order.
    #[serde(default)]
    pub running: Vec<Resident>,
    /// Waiting requests in queue order, at most [`MAX_LISTED_WAITING`].
    #[serde(default)]
    pub waiting: Vec<Resident>,
    /// The waiting requests past those.
    #[serde(default)]
    pub waiting_beyond: WaitingBeyond,
    /// What another scheduler needs; null for vLLM.
    #[serde(default)]
    pub scheduler_state: Option<serde_json::Value>,
}
