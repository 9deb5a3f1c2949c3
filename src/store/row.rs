//! One attempt's decision as it is kept: what was predicted, what came of it, and what later analysis needs.

use serde::{Deserialize, Serialize};

use super::LoggedFeatures;
use crate::domain::{Candidate, Decision, Endpoint, Outcome, Query, Timestamp};

/// What was asked, without the text: with the decision table, all that another policy would have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoggedQuery {
    /// `chat`, `completions`, or the path of another one.
    pub endpoint: String,
    /// Whether the answer was streamed; only then a TTFT can be observed.
    pub streamed: bool,
    /// The answers asked for (`n`).
    pub choices: u32,
    /// The client's cap on output tokens; absent: none.
    pub max_output_tokens: Option<u32>,
    /// Least predicted accuracy asked for, in `[0,1]`; absent: none.
    pub min_accuracy: Option<f64>,
    /// Most predicted cost asked for, USD; absent: none.
    pub max_cost_usd: Option<f64>,
    /// TTFT target, milliseconds; absent: none.
    pub ttft_target_ms: Option<f64>,
    /// TPOT target, milliseconds; absent: none.
    pub tpot_target_ms: Option<f64>,
    /// Whose request it was; absent: unknown.
    pub tenant: Option<String>,
    /// Engine priority; smaller is sooner.
    pub priority: i32,
    /// The adapter it named; absent: none.
    pub adapter: Option<String>,
    /// Input kinds it carried besides text.
    pub modalities: Vec<String>,
    /// Whether it named tools.
    pub tools: bool,
    /// Whether it asked for a structured answer.
    pub structured_output: bool,
}

impl From<&Query> for LoggedQuery {
    fn from(query: &Query) -> Self {
        let endpoint = match &query.endpoint {
            Endpoint::Chat => "chat",
            Endpoint::Completions => "completions",
            Endpoint::Other(path) => path,
        };
        Self {
            endpoint: endpoint.to_owned(),
            streamed: query.streamed,
            choices: query.choices,
            max_output_tokens: query.max_output_tokens,
            min_accuracy: query.bounds.min_accuracy,
            max_cost_usd: query.bounds.max_cost_usd,
            ttft_target_ms: query.ttft_target.map(|target| target.as_secs_f64() * 1e3),
            tpot_target_ms: query.tpot_target.map(|target| target.as_secs_f64() * 1e3),
            tenant: query.tenant.clone(),
            priority: query.priority,
            adapter: query.adapter.clone(),
            modalities: query.needs.modalities.iter().map(ToString::to_string).collect(),
            tools: query.needs.tools,
            structured_output: query.needs.structured_output,
        }
    }
}

/// Which router wrote a row: rows of different ones may not mean the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The version of bear.
    pub bear_version: String,
    /// The digest of the configuration in force; empty: not recorded.
    #[serde(default)]
    pub config_digest: String,
}

impl Default for Origin {
    fn default() -> Self {
        Self { bear_version: env!("CARGO_PKG_VERSION").to_owned(), config_digest: String::new() }
    }
}

/// One settled attempt. A request that was retried has several, each with its own decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    /// When the choice was made.
    pub decided_at: Timestamp,
    /// The whole decision table.
    pub decision: Decision,
    /// What was asked.
    pub query: LoggedQuery,
    /// What became of the attempt; `outcome.instance` is the chosen candidate's position.
    pub outcome: Outcome,
    /// Features of the prompt; absent: not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<LoggedFeatures>,
    /// The prompt's text; kept only where the operator asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Who wrote it; absent until the recorder's writer takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Text of one candidate beside its own fields, about: names, sources and reasons are short.
const CANDIDATE_TEXT_BYTES: usize = 96;

impl DecisionRow {
    /// Returns about how much memory the row holds, bytes. The same row always has the same weight,
    /// whatever its origin.
    pub(super) fn weight_bytes(&self) -> u64 {
        let candidates = self.decision.candidates.len() * (size_of::<Candidate>() + CANDIDATE_TEXT_BYTES);
        let features = self.features.as_ref().map_or(0, LoggedFeatures::weight_bytes);
        let prompt = self.prompt.as_ref().map_or(0, String::len);
        let texts = self.decision.request_id.len() + self.query.endpoint.len();
        (size_of::<Self>() + candidates + features + prompt + texts) as u64
    }
}
