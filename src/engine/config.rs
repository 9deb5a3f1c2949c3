//! The scheduler's parameters, checked (vLLM's `SchedulerConfig` and `CacheConfig`, release 0.32).

use super::EngineError;
use crate::domain::snapshot::{EngineParams, QueuePolicy};

/// Checked scheduler parameters under vLLM's names; `Copy`, so that a replay owns its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// κ: token budget of one step.
    pub max_num_batched_tokens: u32,
    /// Most requests running at once.
    pub max_num_seqs: u32,
    /// b: tokens in a block, at least 1.
    pub block_size: u32,
    /// Blocks, the null block included.
    pub num_kv_blocks: u32,
    /// Most tokens of one sequence.
    pub max_model_len: u32,
    /// θ: cap on one request's tokens in a step; 0: none.
    pub long_prefill_token_threshold: u32,
    /// Free blocks kept back when admitting while something runs.
    pub watermark_blocks: u32,
    /// Admit only when the whole sequence's blocks are free.
    pub reserve_full_isl: bool,
    /// Split prompts over steps.
    pub enable_chunked_prefill: bool,
    /// Reuse cached prefix blocks.
    pub enable_prefix_caching: bool,
    /// Queueing policy.
    pub policy: QueuePolicy,
    /// Form step i+1 while step i runs.
    pub async_scheduling: bool,
}

impl SchedulerConfig {
    /// Returns the blocks that hold `tokens` tokens.
    #[must_use]
    pub const fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_size)
    }

    /// Returns the blocks requests can use: all but the null block.
    #[must_use]
    pub const fn usable_blocks(&self) -> u32 {
        self.num_kv_blocks.saturating_sub(1)
    }
}

impl TryFrom<&EngineParams> for SchedulerConfig {
    type Error = EngineError;

    fn try_from(p: &EngineParams) -> Result<Self, EngineError> {
        if p.block_size == 0 {
            return Err(EngineError::BlockSizeZero);
        }
        if u64::from(p.num_kv_blocks) * u64::from(p.block_size) < u64::from(p.max_model_len) {
            return Err(EngineError::KvTooSmall {
                num_kv_blocks: p.num_kv_blocks,
                block_size: p.block_size,
                max_model_len: p.max_model_len,
            });
        }
        if !p.enable_chunked_prefill && p.max_num_batched_tokens < p.max_model_len {
            return Err(EngineError::BudgetUnderModelLen {
                max_num_batched_tokens: p.max_num_batched_tokens,
                max_model_len: p.max_model_len,
            });
        }
        Ok(Self {
            max_num_batched_tokens: p.max_num_batched_tokens,
            max_num_seqs: p.max_num_seqs,
            block_size: p.block_size,
            num_kv_blocks: p.num_kv_blocks,
            max_model_len: p.max_model_len,
            long_prefill_token_threshold: p.long_prefill_token_threshold,
            watermark_blocks: p.watermark_blocks,
            reserve_full_isl: p.reserve_full_isl,
            enable_chunked_prefill: p.enable_chunked_prefill,
            enable_prefix_caching: p.enable_prefix_caching,
            policy: p.policy,
            async_scheduling: p.async_scheduling,
        })
    }
}
