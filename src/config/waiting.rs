//! Sections whose rooms are not merged yet.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
/// x
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// x
    pub address: String,
    /// x
    pub admin: String,
    /// x
    pub max_body_mib: u32,
}
impl Default for ListenConfig {
    fn default() -> Self {
        Self { address: "127.0.0.1:8080".into(), admin: "127.0.0.1:8081".into(), max_body_mib: 32 }
    }
}
/// x
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// x
    pub connect_timeout_ms: u32,
    /// x
    pub first_byte_timeout_s: u32,
    /// x
    pub idle_timeout_s: u32,
    /// x
    pub total_timeout_s: u32,
    /// x
    pub pool_idle_s: u32,
    /// x
    pub retries: u32,
    /// x
    pub authorization: String,
}
impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 1000,
            first_byte_timeout_s: 120,
            idle_timeout_s: 60,
            total_timeout_s: 600,
            pool_idle_s: 4,
            retries: 1,
            authorization: "forward".into(),
        }
    }
}
/// x
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerConfig {
    /// x
    pub files: Option<String>,
    /// x
    pub engine: bool,
}
