//! One routing decision as a table: what was known of each instance, what was chosen and why.
//!
//! The same structure feeds the response headers, `POST /v1/route`, the decision row and the span.

use serde::{Deserialize, Serialize};

use super::InstanceId;

/// Why the chosen instance was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Highest utility in the feasible set (eq. 5).
    MaxUtility,
    /// No candidate in reach has a predicted accuracy: least predicted cost.
    LeastCost,
    /// Nothing feasible: least TTFT (eq. 5's fallback).
    LeastTtft,
    /// Highest utility − δ·TTFT (eq. 7).
    Lagrangian,
    /// The request named a concrete model.
    Pinned,
    /// Taken in turn.
    RoundRobin,
    /// Fewest residents.
    ShortestQueue,
    /// Best by a score of the policy's own.
    Score,
    /// Least latency by the policy's own measure.
    LeastLatency,
    /// Least load by the policy's own measure.
    LeastLoad,
    /// It was sent the longest prefix of the prompt before.
    CacheHit,
    /// Another instance after a failed attempt.
    Retry,
}

impl Reason {
    /// Returns the label used in headers and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::MaxUtility => "max-utility",
            Self::LeastCost => "least-cost",
            Self::LeastTtft => "least-ttft",
            Self::Lagrangian => "lagrangian",
            Self::Pinned => "pinned",
            Self::RoundRobin => "round-robin",
            Self::ShortestQueue => "shortest-queue",
            Self::Score => "score",
            Self::LeastLatency => "least-latency",
            Self::LeastLoad => "least-load",
            Self::CacheHit => "cache-hit",
            Self::Retry => "retry",
        }
    }
}

/// Why an instance may not serve a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Ineligible {
    /// Prompt (and the asked output) exceed the context length.
    ContextLength {
        /// Tokens needed.
        needed_tokens: u32,
        /// Tokens the model takes.
        max_model_len_tokens: u32,
    },
    /// The model does not take an input kind.
    Modality {
        /// The kind.
        modality: String,
    },
    /// The model takes no tools.
    Tools,
    /// The model gives no structured output.
    StructuredOutput,
    /// The predicted accuracy is under the client's bound.
    MinAccuracy {
        /// Predicted.
        accuracy: f64,
        /// Asked.
        min_accuracy: f64,
    },
    /// The predicted cost is over the client's bound.
    MaxCost {
        /// Predicted, USD.
        cost_usd: f64,
        /// Asked, USD.
        max_cost_usd: f64,
    },
    /// A bound is set on something that is not predicted for the model.
    UnknownPrediction {
        /// The bound, `min_accuracy` or `max_cost_usd`.
        bound: String,
    },
    /// The request named another model.
    OtherModel,
    /// The instance is down, draining or already failed this request.
    Unusable {
        /// Which.
        why: String,
    },
}

/// What stands for an estimator in [`Candidate::source`] where the prompt's own time ruled an instance out.
pub const PROMPT_BOUND: &str = "prompt-bound";

/// One instance's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The instance.
    pub instance: InstanceId,
    /// Its model.
    pub model: String,
    /// Prompt tokens under that model.
    pub prompt_tokens: u32,
    /// How they were counted (`tokenizer`, `engine`, `bytes`).
    pub count_source: String,
    /// Predicted accuracy in `[0,1]`; absent: not predicted.
    pub accuracy: Option<f64>,
    /// Predicted output tokens; absent: not predicted.
    pub output_tokens: Option<f64>,
    /// Predicted cost, USD; absent: not predicted.
    pub cost_usd: Option<f64>,
    /// Utility (eq. 4); absent: not predicted.
    pub utility: Option<f64>,
    /// Where accuracy and length come from (`bundle`, `prior`, `unknown`).
    pub predictor: String,
    /// Waiting part of the TTFT, seconds (eq. 3); absent: not estimated.
    pub wait_s: Option<f64>,
    /// Prefill part of the TTFT, seconds (eq. 3); absent: not estimated.
    pub prefill_s: Option<f64>,
    /// TTFT, seconds; absent: not estimated or never.
    pub ttft_s: Option<f64>,
    /// One standard deviation of the TTFT, seconds; absent: unknown.
    pub spread_s: Option<f64>,
    /// A TTFT that no estimate falls below, seconds: what the prompt takes on an idle engine; absent: not asked
    /// for, nothing known, or estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_ttft_s: Option<f64>,
    /// The estimator (`bea`, `bea-ledger`, …), or [`PROMPT_BOUND`] where the least TTFT is past the target and
    /// none was asked; absent: not estimated.
    pub source: Option<String>,
    /// Why no TTFT is finite; absent: it is.
    pub no_estimate: Option<String>,
    /// Age of the state under the estimate, seconds; absent: none.
    pub age_s: Option<f64>,
    /// Why it may not serve the request; absent: it may.
    pub ineligible: Option<Ineligible>,
    /// Whether the TTFT meets the target; absent: neither estimated nor ruled out by the least TTFT.
    pub feasible: Option<bool>,
    /// Interchangeable with the choice in the policy's eyes.
    pub interchangeable: bool,
    /// The chosen one.
    pub chosen: bool,
}

/// A decision and everything it rested on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The request id.
    pub request_id: String,
    /// Which attempt at the request this is, from 1.
    #[serde(default = "first")]
    pub attempt: u32,
    /// The model name in the request, an alias or the virtual one as it stands; absent: not recorded.
    #[serde(default)]
    pub requested_model: Option<String>,
    /// The version of the predictor behind accuracy and length: `name@digest` of the bundle, or `prior`;
    /// absent: not recorded.
    #[serde(default)]
    pub predictor_version: Option<String>,
    /// The policy's registered name.
    pub policy: String,
    /// Why the choice.
    pub reason: Reason,
    /// λ in force, per USD.
    pub lambda_per_usd: f64,
    /// δ in force, per second.
    pub delta_per_s: f64,
    /// TTFT target, milliseconds; absent: none.
    pub ttft_target_ms: Option<f64>,
    /// Probability that the policy would pick this instance again from the same state.
    pub propensity: f64,
    /// The latency that the policy itself believes of its choice, seconds; absent: it believes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub believed_latency_s: Option<f64>,
    /// One row an instance, in pool order.
    pub candidates: Vec<Candidate>,
}

const fn first() -> u32 {
    1
}

impl Decision {
    /// Returns the chosen row.
    #[must_use]
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.chosen)
    }
}

/// What a target does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
    /// Prefill and decode.
    Both,
}

/// One target of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// What it does.
    pub role: Role,
    /// Its position in the pool.
    pub instance: usize,
    /// The adapter to use there.
    pub adapter: Option<String>,
}

/// Where a request goes: usually one leg with [`Role::Both`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The legs, prefill first.
    pub legs: Vec<Leg>,
}

impl Placement {
    /// Places everything on one instance.
    #[must_use]
    pub fn single(instance: usize, adapter: Option<String>) -> Self {
        Self { legs: vec![Leg { role: Role::Both, instance, adapter }] }
    }
}
