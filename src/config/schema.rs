//! The configuration file as it is written: each room's own section, and the models and instances.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    affinity::AffinityConfig,
    domain::{BatchTimeCoefficients, Capabilities, Overhead, Price},
    gateway::{ListenConfig, UpstreamConfig, tokenize::TokenizerConfig},
    latency::LatencyConfig,
    pool::PoolConfig,
    router::RouterConfig,
    snapshots::SnapshotConfig,
    store::StoreConfig,
    telemetry::TelemetryConfig,
};

/// The whole configuration. Every key has a default but those of a model or an instance that make it one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the router listens.
    pub listen: ListenConfig,
    /// How it decides.
    pub routing: RouterConfig,
    /// What predicts accuracy and output length.
    pub predictors: PredictorsConfig,
    /// The models of the pool.
    pub models: Vec<ModelConfig>,
    /// The instances of the pool.
    pub instances: Vec<InstanceConfig>,
    /// How interchangeable instances are ranked.
    pub affinity: AffinityConfig,
    /// How first-token times are estimated.
    pub latency: LatencyConfig,
    /// How the state of instances is kept.
    pub pool: PoolConfig,
    /// How requests are sent to instances.
    pub upstream: UpstreamConfig,
    /// Where decisions are kept.
    pub store: StoreConfig,
    /// Logs, traces and metrics.
    pub telemetry: TelemetryConfig,
}

/// What predicts accuracy and output length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PredictorsConfig {
    /// The folder of a trained bundle; null predicts every model's `prior`.
    pub bundle: Option<PathBuf>,
    /// Whether a bundle trained on made-up evaluations may serve. For demonstrations only.
    pub allow_synthetic: bool,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The name that clients and upstreams use.
    pub id: String,
    /// Its parameters, billions.
    pub parameters_b: f64,
    /// Its context length, tokens.
    pub max_model_len: u32,
    /// What its tokens cost.
    pub price: Price,
    /// How its prompts are counted.
    #[serde(default)]
    pub tokenizer: TokenizerConfig,
    /// What it can do beyond plain text chat.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// What is assumed of it where no bundle knows it.
    #[serde(default)]
    pub prior: PriorConfig,
}

/// What is assumed of a model where no bundle knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PriorConfig {
    /// Mean accuracy in `[0,1]`; null: unknown.
    pub accuracy: Option<f64>,
    /// Mean output tokens; null: unknown.
    pub output_tokens: Option<f64>,
}

/// One instance: one scheduler that serves one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceConfig {
    /// Its name in decisions, metrics and logs.
    pub id: String,
    /// The id of the model it serves.
    pub model: String,
    /// Its address, without `/v1`.
    pub url: String,
    /// The data-parallel rank behind the address.
    #[serde(default)]
    pub dp_rank: u32,
    /// Where its state comes from.
    #[serde(default)]
    pub snapshots: SnapshotConfig,
    /// The coefficients of its batch time (eq. 12); null: uncalibrated.
    #[serde(default)]
    pub batch_time: Option<BatchTimeCoefficients>,
    /// Time a request spends outside its batches.
    #[serde(default)]
    pub overhead: Overhead,
    /// Prefill tokens over the time of all batches that hold prefill (eq. 8 and 14), tokens/s; null: unknown.
    #[serde(default)]
    pub effective_prefill_tokens_per_s: Option<f64>,
    /// One full chunk over its time, tokens/s; null: derived from `batch_time`.
    #[serde(default)]
    pub peak_prefill_tokens_per_s: Option<f64>,
    /// Parameters of the queueing estimate (eq. 13–15).
    #[serde(default)]
    pub lps: LpsConfig,
    /// What its tokens cost, where that is not the model's price.
    #[serde(default)]
    pub price: Option<Price>,
}

/// Parameters of the queueing estimate (eq. 13–15); null: learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LpsConfig {
    /// μ, requests/s.
    pub service_rate_per_s: Option<f64>,
    /// k, requests served at once.
    pub concurrency: Option<u32>,
}
