//! The list of policies and how configuration names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    RoutingPolicy, bear, bear_lagrangian, block, dynamo, latency_agnostic, lmdeploy, lmdeploy_observed,
    power_of_two, round_robin, route_balance, score, sglang_cache_aware, shortest_queue, vllm_sr,
};
use crate::domain::suggestion;

/// Makes a policy from its own options.
type Build = fn(&Map<String, Value>) -> Result<Box<dyn RoutingPolicy>, PolicyError>;

/// One line of [`POLICIES`].
pub struct PolicyEntry {
    /// The registered name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Makes it from its options.
    pub build: Build,
}

/// Every policy, sorted by name.
pub const POLICIES: &[PolicyEntry] = &[
    bear::ENTRY,
    bear_lagrangian::ENTRY,
    block::ENTRY,
    dynamo::ENTRY,
    latency_agnostic::ENTRY,
    lmdeploy::ENTRY,
    lmdeploy_observed::ENTRY,
    power_of_two::ENTRY,
    round_robin::ENTRY,
    route_balance::ENTRY,
    score::ENTRY,
    sglang_cache_aware::ENTRY,
    shortest_queue::ENTRY,
    vllm_sr::ENTRY,
];

/// The `routing.policy` section of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// A name of [`POLICIES`].
    pub name: String,
    /// That policy's own options.
    pub options: Map<String, Value>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { name: String::from("bear"), options: Map::new() }
    }
}

impl PolicyConfig {
    /// Makes the policy.
    ///
    /// # Errors
    /// [`PolicyError`] where the name or an option is unknown, or a value is outside its range.
    pub fn build(&self) -> Result<Box<dyn RoutingPolicy>, PolicyError> {
        let entry = POLICIES.iter().find(|entry| entry.name == self.name);
        let entry = entry.ok_or_else(|| {
            let names: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
            PolicyError::Unknown { name: self.name.clone(), suggestion: suggestion(&self.name, &names) }
        })?;
        (entry.build)(&self.options)
    }
}

/// Why a policy could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No policy has that name.
    #[error("unknown policy `{name}`; {suggestion}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The nearest registered name, or all of them.
        suggestion: String,
    },
    /// The options do not fit the policy.
    #[error("options of policy `{name}`: {source}")]
    Options {
        /// The policy.
        name: &'static str,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// An option is outside its range.
    #[error("options of policy `{name}`: `{option}` is {value}; give {allowed}")]
    OutOfRange {
        /// The policy.
        name: &'static str,
        /// The option.
        option: String,
        /// Its value.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
}

/// Reads a policy's own options.
pub(super) fn parse<T: DeserializeOwned>(
    name: &'static str,
    options: &Map<String, Value>,
) -> Result<T, PolicyError> {
    serde_json::from_value(Value::Object(options.clone()))
        .map_err(|source| PolicyError::Options { name, source })
}

/// Refuses the first option whose value is negative or not finite.
pub(super) fn not_negative(name: &'static str, options: &[(&str, f64)]) -> Result<(), PolicyError> {
    match options.iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
        Some(&(option, value)) => Err(PolicyError::OutOfRange {
            name,
            option: option.to_owned(),
            value,
            allowed: "a number of at least 0",
        }),
        None => Ok(()),
    }
}
