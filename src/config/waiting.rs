//! Sections whose rooms are not merged yet.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
/// x
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// x
    pub address: String,
}
/// x
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// x
    pub retries: u32,
}
/// x
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerConfig {
    /// x
    pub engine: bool,
}
