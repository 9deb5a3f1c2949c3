//! The list of policies and how configuration names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    Bear, BearLagrangian, LatencyAgnostic, RoundRobin, RoutingPolicy, ShortestQueue, bear_lagrangian,
    latency_agnostic, round_robin, shortest_queue,
};

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
    PolicyEntry {
        name: "bear",
        summary: "highest utility among instances predicted to meet the TTFT target (eq. 5)",
        build: |options| parse::<super::bear::Options>("bear", options).map(|_| Box::new(Bear) as _),
    },
    PolicyEntry {
        name: "bear-lagrangian",
        summary: "highest utility less delta times predicted TTFT (eq. 7)",
        build: |options| {
            parse::<bear_lagrangian::Options>("bear-lagrangian", options)
                .map(|_| Box::new(BearLagrangian) as _)
        },
    },
    PolicyEntry {
        name: "latency-agnostic",
        summary: "highest utility, blind to load",
        build: |options| {
            parse::<latency_agnostic::Options>("latency-agnostic", options)
                .map(|_| Box::new(LatencyAgnostic) as _)
        },
    },
    PolicyEntry {
        name: "round-robin",
        summary: "every eligible instance in turn",
        build: |options| {
            parse::<round_robin::Options>("round-robin", options)
                .map(|_| Box::new(RoundRobin::default()) as _)
        },
    },
    PolicyEntry {
        name: "shortest-queue",
        summary: "fewest waiting and running requests",
        build: |options| {
            parse::<shortest_queue::Options>("shortest-queue", options).map(|_| Box::new(ShortestQueue) as _)
        },
    },
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
    /// [`PolicyError`] where the name or an option is unknown.
    pub fn build(&self) -> Result<Box<dyn RoutingPolicy>, PolicyError> {
        let entry = POLICIES.iter().find(|entry| entry.name == self.name);
        let entry = entry.ok_or_else(|| PolicyError::Unknown {
            name: self.name.clone(),
            nearest: nearest(&self.name, POLICIES.iter().map(|entry| entry.name)),
        })?;
        (entry.build)(&self.options)
    }
}

/// Why a policy could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No policy has that name.
    #[error("unknown policy `{name}`; did you mean `{nearest}`?")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The registered name nearest to it.
        nearest: &'static str,
    },
    /// The options do not fit the policy.
    #[error("options of policy `{name}`: {source}")]
    Options {
        /// The policy.
        name: &'static str,
        /// What does not fit.
        source: serde_json::Error,
    },
}

fn parse<T: DeserializeOwned>(name: &'static str, options: &Map<String, Value>) -> Result<T, PolicyError> {
    serde_json::from_value(Value::Object(options.clone()))
        .map_err(|source| PolicyError::Options { name, source })
}

/// Returns the name with the least edit distance to `asked`; the first among equals.
fn nearest(asked: &str, names: impl Iterator<Item = &'static str>) -> &'static str {
    names.min_by_key(|name| edit_distance(asked, name)).unwrap_or("")
}

/// Returns the Levenshtein distance, characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
