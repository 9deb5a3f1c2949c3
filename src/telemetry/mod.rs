//! What the process tells of itself: metric and span names, logs, traces and the one clock.
//!
//! Names live in [`names`] alone, so that a dashboard and the code that feeds it cannot drift. To add
//! a metric, add its constant there and list it in [`names::METRICS`].

pub mod clock;
pub mod names;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
