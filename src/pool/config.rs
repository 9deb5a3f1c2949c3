//! The pool's options.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PoolError;

/// How the pool judges snapshots, rebuilds state and opens breakers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// A snapshot captured longer ago is no basis any more; the ledger takes over. Milliseconds.
    pub stale_after_ms: u64,
    /// How far a capture may lie ahead of its receipt before the clocks are held to disagree. Milliseconds.
    pub max_clock_lead_ms: u64,
    /// How long after its expected arrival a request that no snapshot lists is still held to be in
    /// transit. Milliseconds.
    pub transit_grace_ms: u64,
    /// A state rebuilt from the ledger is kept this long while only tokens arrive. Milliseconds.
    pub ledger_period_ms: u64,
    /// Token budget of a step assumed of an engine that never told its own.
    pub assumed_max_num_batched_tokens: u32,
    /// Most running requests assumed of such an engine.
    pub assumed_max_num_seqs: u32,
    /// Output tokens assumed where nothing predicts or has shown any.
    pub assumed_output_tokens: u32,
    /// Consecutive failures (connect, time-out, 5xx) that open an instance's breaker; 0: never.
    pub breaker_failures: u32,
    /// How long an open breaker waits before one probe. Milliseconds.
    pub breaker_cooldown_ms: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            stale_after_ms: 2000,
            max_clock_lead_ms: 1000,
            transit_grace_ms: 250,
            ledger_period_ms: 20,
            assumed_max_num_batched_tokens: 8192,
            assumed_max_num_seqs: 256,
            assumed_output_tokens: 256,
            breaker_failures: 5,
            breaker_cooldown_ms: 5000,
        }
    }
}

impl PoolConfig {
    /// Checks the values that types cannot.
    ///
    /// # Errors
    /// [`PoolError::Config`] names the key.
    pub fn check(&self) -> Result<(), PoolError> {
        let positive = [
            ("stale_after_ms", self.stale_after_ms),
            ("assumed_max_num_batched_tokens", u64::from(self.assumed_max_num_batched_tokens)),
            ("assumed_max_num_seqs", u64::from(self.assumed_max_num_seqs)),
            ("assumed_output_tokens", u64::from(self.assumed_output_tokens)),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(PoolError::Config { key }),
            None => Ok(()),
        }
    }
}
