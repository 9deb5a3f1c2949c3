//! What the process tells of itself: metric and span names, logs, traces and the one clock.
//!
//! Names live in [`names`] alone, so that a dashboard and the code that feeds it cannot drift. To add
//! a metric, add its constant there and list it in [`names::METRICS`].

pub mod clock;
mod lines;
pub mod names;
pub mod prometheus;
mod secrets;
mod setup;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use secrets::without_secrets;
pub use setup::{Guard, build, init};

/// What the process tells of itself, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// The least level logged, or a filter such as `info,bear::pool=debug`.
    pub log: String,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// The OpenTelemetry collector's HTTP address, such as `http://127.0.0.1:4318`; null sends no traces.
    pub otlp_endpoint: Option<String>,
    /// Whether `/metrics` is served.
    pub prometheus: bool,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { log: "info".into(), log_format: LogFormat::Text, otlp_endpoint: None, prometheus: true }
    }
}

/// Why telemetry could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log filter does not parse.
    #[error("`{filter}` is no log filter (hint: a level such as `info`, or `info,bear::pool=debug`)")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Traces cannot be sent there.
    #[error("cannot send traces to `{endpoint}`: {why} (hint: an address such as http://127.0.0.1:4318)")]
    Endpoint {
        /// As given, secrets hidden.
        endpoint: String,
        /// What is wrong.
        why: String,
    },
    /// The metrics recorder cannot be built or installed.
    #[error("cannot set up the metrics: {why}")]
    Recorder {
        /// What is wrong.
        why: String,
    },
    /// Logs were set up before.
    #[error("logs are already set up in this process")]
    AlreadySetUp,
}
