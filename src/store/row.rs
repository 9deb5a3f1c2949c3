//! One attempt's decision as it is kept: what was predicted, what came of it, and what later analysis needs.

use serde::{Deserialize, Serialize};

use crate::domain::{Decision, Outcome, Timestamp};

/// A query's features as they were at the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedFeatures {
    /// The feature function's version; rows of different versions do not mix.
    pub version: String,
    /// The sparse counts before any fitted projection (pairs of index and count), and named scalars.
    pub values: serde_json::Value,
}

/// One settled attempt. A request that was retried has several, each with its own decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    /// When the choice was made.
    pub decided_at: Timestamp,
    /// The whole decision table.
    pub decision: Decision,
    /// Whether the answer was streamed; only then a TTFT can be observed.
    pub streamed: bool,
    /// What became of the attempt; `outcome.instance` is the chosen candidate's position.
    pub outcome: Outcome,
    /// Features of the prompt; absent: not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<LoggedFeatures>,
    /// The prompt's text; kept only where the operator asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}
