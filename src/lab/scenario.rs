//! A scenario: the world, the traffic, and the routers to compare, as one YAML file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::LabError;
use crate::{domain::Price, policy::PolicyConfig};

/// A comparison of routers over a simulated fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, in tables and files.
    pub name: String,
    /// What it shows, for readers.
    #[serde(default)]
    pub about: String,
    /// The models and how many instances serve each.
    pub pool: Vec<PoolModel>,
    /// What requests are.
    pub workload: Named,
    /// When they come.
    pub arrivals: Named,
    /// The TTFT targets.
    #[serde(default)]
    pub targets: TargetRule,
    /// λ of eq. 4: utility given up per USD.
    #[serde(default = "lambda")]
    pub lambda_per_usd: f64,
    /// δ of eq. 7: utility given up per second.
    #[serde(default)]
    pub delta_per_s: f64,
    /// Virtual time that is measured, seconds.
    pub duration_s: f64,
    /// Virtual time before it that is not, seconds.
    #[serde(default)]
    pub warmup_s: f64,
    /// What predicts accuracy and length.
    #[serde(default)]
    pub predictor: PredictorChoice,
    /// How snapshots reach the routers.
    #[serde(default)]
    pub snapshots: SnapshotRule,
    /// From a router to an instance, beside the instance's own ingress, seconds; as long back.
    #[serde(default)]
    pub network_delay_s: f64,
    /// Routers that share the pool, each with an equal share of the traffic.
    #[serde(default = "one")]
    pub router_count: u32,
    /// Instances that fail and come back.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// How wrong the routers' calibration is.
    #[serde(default)]
    pub misfit: Misfit,
    /// The routers to compare.
    pub routers: Vec<RouterChoice>,
    /// Values to cross: dotted keys of this file with the values each takes in turn.
    #[serde(default)]
    pub axes: BTreeMap<String, Vec<Value>>,
    /// One run a seed.
    #[serde(default = "seeds")]
    pub seeds: Vec<u64>,
    /// Keeps the requests of each run beside its metrics, at most this many a run.
    #[serde(default)]
    pub keep_requests: usize,
}

/// A registered variant by name, with its own options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The registered name.
    pub name: String,
    /// Its options.
    #[serde(default)]
    pub options: Map<String, Value>,
}

/// One model of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolModel {
    /// The built-in profile that its instances obey.
    pub profile: String,
    /// Its instances.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Its price.
    pub price: Price,
}

/// The TTFT target of each request (paper A.2): `min(most, max(least, u + (base + slope·prompt)·v))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetRule {
    /// Whether requests have targets at all.
    pub enabled: bool,
    /// The part that every prompt gets, milliseconds.
    pub base_ms: f64,
    /// The part a prompt token adds, milliseconds. The paper writes 3.5e-3 and does not state its unit; read
    /// as tokens, its own cap of 1120 ms is out of reach.
    pub slope_ms_per_token: f64,
    /// u is uniform between these, milliseconds.
    pub jitter_ms: [f64; 2],
    /// v is uniform between these.
    pub jitter_factor: [f64; 2],
    /// The least target, milliseconds.
    pub least_ms: f64,
    /// The largest target, milliseconds.
    pub most_ms: f64,
}

impl Default for TargetRule {
    fn default() -> Self {
        Self {
            enabled: true,
            base_ms: 155.0,
            slope_ms_per_token: 3.5e-3,
            jitter_ms: [1.0, 5.0],
            jitter_factor: [0.98, 1.02],
            least_ms: 150.0,
            most_ms: 1120.0,
        }
    }
}

/// What predicts accuracy and output length, the same for every router of the scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "of")]
pub enum PredictorChoice {
    /// A bundle: one built in, by its name, or a folder.
    Bundle(String),
    /// The mean score and length of each model over the workload.
    Mean,
    /// The truth.
    Oracle,
}

impl Default for PredictorChoice {
    fn default() -> Self {
        Self::Bundle(String::from("four-tasks"))
    }
}

/// How an instance's snapshots reach the routers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotRule {
    /// Whether instances publish any; without, routers have their ledgers alone.
    pub enabled: bool,
    /// A snapshot is captured every so often, milliseconds; 0: as fresh as the delay allows at each decision.
    pub period_ms: f64,
    /// From its capture to the routers, milliseconds.
    pub delay_ms: f64,
    /// Whether estimates roll a snapshot forward to the present; without, they take it for the present.
    pub roll_forward: bool,
    /// Whether routers remember what they sent since the capture.
    pub ledger: bool,
}

impl Default for SnapshotRule {
    fn default() -> Self {
        Self { enabled: true, period_ms: 0.0, delay_ms: 0.0, roll_forward: true, ledger: true }
    }
}

/// An instance that is down for a while: what it holds is lost and fails over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Its name, such as `qwen3-8b-0`.
    pub instance: String,
    /// When, seconds from the start of what is measured.
    pub at_s: f64,
    /// For how long, seconds.
    pub for_s: f64,
}

/// How wrong the routers' calibration is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Misfit {
    /// Every β of eq. 12 is this many times the fitted one.
    pub batch_time_factor: f64,
    /// The snapshots' asynchronous flag is the opposite of the engine's.
    pub wrong_async: bool,
}

impl Default for Misfit {
    fn default() -> Self {
        Self { batch_time_factor: 1.0, wrong_async: false }
    }
}

/// One router of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterChoice {
    /// Its label in tables and figures.
    pub label: String,
    /// Its policy.
    pub policy: PolicyConfig,
    /// Its TTFT estimator.
    #[serde(default = "bea")]
    pub estimator: String,
    /// Replaces the scenario's λ in this router's own weighing; utilities stay valued at the scenario's.
    #[serde(default)]
    pub lambda_per_usd: Option<f64>,
    /// Replaces the scenario's δ.
    #[serde(default)]
    pub delta_per_s: Option<f64>,
    /// Replaces the scenario's predictor.
    #[serde(default)]
    pub predictor: Option<PredictorChoice>,
    /// Options tried first, on other seeds; the runs take those with the best OnTimeUtility, point by point.
    #[serde(default)]
    pub sweep: Option<Sweep>,
}

/// A search over a policy's options before it is compared, in two rounds: short trials flatter options under
/// which queues grow slowly, so the best of them are tried again for as long as the runs will last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The option sets to try.
    pub options: Vec<Map<String, Value>>,
    /// Measured virtual time of each trial of the short round, seconds.
    pub duration_s: f64,
    /// The seeds of both rounds.
    pub seeds: Vec<u64>,
    /// So many of the best option sets are tried again for the scenario's own duration, and the best of those is
    /// taken; with 0 or 1 the short round decides.
    #[serde(default = "finalists")]
    pub finalists: usize,
}

impl Scenario {
    /// Parses a scenario; `place` names it in errors.
    ///
    /// # Errors
    /// [`LabError::Parse`] says where and why; [`LabError::Invalid`] names a key whose value breaks a rule.
    pub fn parse(text: &str, place: &str) -> Result<Self, LabError> {
        let scenario: Self = serde_saphyr::from_str(text)
            .map_err(|source| LabError::Parse { place: place.to_owned(), source: Box::new(source) })?;
        scenario.check(place)?;
        Ok(scenario)
    }
}

const fn lambda() -> f64 {
    500.0
}

const fn one() -> u32 {
    1
}

const fn finalists() -> usize {
    3
}

fn seeds() -> Vec<u64> {
    vec![1]
}

fn bea() -> String {
    String::from("bea")
}
