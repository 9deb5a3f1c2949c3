//! A serving instance and what is known of it at the moment of a decision.

use std::{borrow::Borrow, collections::HashMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{BatchTimeCoefficients, ModelIndex, Overhead, Price, Snapshot, Timestamp};

/// The configured name of one instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(Arc<str>);

impl InstanceId {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for InstanceId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for InstanceId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One instance as configured: a scheduler that serves one model.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceSpec {
    /// Its configured name.
    pub id: InstanceId,
    /// The model it serves.
    pub model: ModelIndex,
    /// The data-parallel rank behind its address.
    pub dp_rank: u32,
    /// What its tokens cost: the model's price, or its own.
    pub price: Price,
    /// Coefficients of its batch time; absent: uncalibrated.
    pub batch_time: Option<BatchTimeCoefficients>,
    /// Time outside its batches.
    pub overhead: Overhead,
    /// θ_pre of eq. 8 and 14: prefill tokens over the time of all batches that hold prefill, tokens/s.
    pub effective_prefill_tokens_per_s: Option<f64>,
    /// One full chunk over its time, tokens/s; guards the affinity gate.
    pub peak_prefill_tokens_per_s: Option<f64>,
}

/// A request sent to an instance after the basis snapshot was captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatched {
    /// The id sent upstream.
    pub id: String,
    /// When it joins the engine's queue: its dispatch plus the instance's ingress.
    pub at_unix_us: Timestamp,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens expected from the prefix cache.
    #[serde(default)]
    pub cached_tokens: u32,
    /// Blocks of that hit which running requests hold.
    #[serde(default)]
    pub cached_blocks_in_use: u32,
    /// Predicted output tokens.
    pub output_tokens: u32,
    /// Engine priority; smaller is sooner.
    #[serde(default)]
    pub priority: i32,
}

/// Where the state under an estimate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BasisSource {
    /// A snapshot the engine published.
    Snapshot,
    /// Rebuilt from the requests this router sent.
    Ledger,
}

/// A replayable state of one instance: a snapshot, the lengths the router predicts for its residents
/// and what this router sent since.
#[derive(Clone, Debug)]
pub struct Basis {
    /// Where the state comes from.
    pub source: BasisSource,
    /// The engine's state at its capture.
    pub snapshot: Arc<Snapshot>,
    /// Remaining output tokens by resident id (at least 1 each); every listed resident has one.
    pub predicted_remaining: Arc<HashMap<String, u32>>,
    /// Requests dispatched since the capture, in dispatch order.
    pub dispatched: Arc<[Dispatched]>,
}

/// Totals of what this router has in flight on an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests reserved and not settled.
    pub requests: u32,
    /// Their uncached prompt tokens that have not produced a first token.
    pub uncached_prefill_tokens: u64,
}

/// What is known of one instance now. Cheap to clone: everything large is shared.
#[derive(Clone, Debug)]
pub struct InstanceView {
    /// The instance as configured.
    pub spec: Arc<InstanceSpec>,
    /// The state to replay from; absent: nothing is known.
    pub basis: Option<Basis>,
    /// Residents (waiting and running) by the best source at hand; absent: unknown.
    pub resident_requests: Option<u32>,
    /// This router's own load.
    pub load: Load,
    /// Whether it may be chosen; the reason why not otherwise.
    pub usable: Result<(), &'static str>,
}
