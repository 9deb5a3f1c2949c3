//! What a run leaves behind: one line of metrics, and where asked for its requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Named, PoolModel, PredictorChoice, RouterChoice, Scenario, TargetRule};

/// What tells one run from another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunKey {
    /// The scenario's name.
    pub scenario: String,
    /// The values of its axes in this run, by dotted key.
    pub point: BTreeMap<String, Value>,
    /// The router's label.
    pub router: String,
    /// Its policy's options, those found by a sweep included.
    pub options: Map<String, Value>,
    /// The seed.
    pub seed: u64,
    /// Digest of what it depends on besides its seed: the scenario at its point, its router, and the profiles,
    /// data and predictors behind them. A line of another digest is not taken for this run's.
    pub digest: String,
    /// Digest of what all runs that may be compared with it share: the same without the point and the router.
    pub world: String,
}

/// What a run was played under, for readers of its line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The pool.
    pub pool: Vec<PoolModel>,
    /// What requests are.
    pub workload: Named,
    /// When they come.
    pub arrivals: Named,
    /// The TTFT targets.
    pub targets: TargetRule,
    /// λ at which utilities are valued.
    pub lambda_per_usd: f64,
    /// What predicts accuracy and length for this router.
    pub predictor: PredictorChoice,
    /// Measured virtual time, seconds.
    pub duration_s: f64,
    /// Virtual time before it, seconds.
    pub warmup_s: f64,
}

impl Setting {
    /// Takes it from a scenario whose point is in place, and a router.
    #[must_use]
    pub fn of(scenario: &Scenario, router: &RouterChoice) -> Self {
        Self {
            pool: scenario.pool.clone(),
            workload: scenario.workload.clone(),
            arrivals: scenario.arrivals.clone(),
            targets: scenario.targets,
            lambda_per_usd: scenario.lambda_per_usd,
            predictor: router.predictor.clone().unwrap_or_else(|| scenario.predictor.clone()),
            duration_s: scenario.duration_s,
            warmup_s: scenario.warmup_s,
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// Which run.
    pub key: RunKey,
    /// What it was played under.
    pub setting: Setting,
    /// What it measured.
    pub metrics: Metrics,
    /// Its requests, where the scenario keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestRecord>,
}

/// A request's share of something, by name.
pub type Share = BTreeMap<String, f64>;

/// The measured requests of one run. Means are over requests that arrived in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Requests.
    pub requests: u64,
    /// Of these, requests that never got an answer.
    pub failed: u64,
    /// Of all, requests whose answers have scores: utilities and scores are means over these.
    pub judged: u64,
    /// Mean over requests of utility where the target was met, 0 where not (eq. 6).
    pub on_time_utility: f64,
    /// Share of requests that met their target, in `[0,1]`.
    pub attainment: f64,
    /// Mean utility, late answers included.
    pub mean_utility: f64,
    /// Mean score.
    pub mean_score: f64,
    /// Mean cost, USD.
    pub mean_cost_usd: f64,
    /// Share of answers whose utility is negative.
    pub negative_utility_share: f64,
    /// TTFT, seconds.
    pub ttft_s: Quantiles,
    /// Time an output token after the first, seconds.
    pub tpot_s: Quantiles,
    /// Whole answer, seconds.
    pub e2e_s: Quantiles,
    /// Answers completed a second of measured time, whenever they were asked for.
    pub answers_per_s: f64,
    /// Output tokens of those a second.
    pub output_tokens_per_s: f64,
    /// Prompt tokens found in prefix caches over those looked up, in `[0,1]`.
    pub cache_hit_rate: f64,
    /// Preemptions in the measured time, as all counts of engines and decisions here are.
    pub preemptions: u64,
    /// Share of requests a model.
    pub model_share: Share,
    /// Share of a model's requests that met their target.
    pub model_attainment: Share,
    /// Share of requests an instance.
    pub instance_share: Share,
    /// Mean share of requests a task that each model got, as `task/model`.
    pub task_model_share: Share,
    /// Mean running requests an instance over its steps.
    pub mean_running: Share,
    /// Estimates a decision, mean.
    pub estimates_per_decision: f64,
    /// Mean absolute relative error of the predicted TTFT of what was chosen, in `[0,1]`; absent: none predicted.
    pub ttft_mape: Option<f64>,
    /// A bound on OnTimeUtility: mean over judged requests of the best model's utility where positive, as if nobody
    /// had to wait.
    pub best_utility: f64,
    /// Coefficient of variation of each instance's share over windows of five seconds, mean over instances.
    pub share_variation: f64,
}

/// A distribution in six numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Mean.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// 90% are below.
    pub p90: f64,
    /// 95% are below.
    pub p95: f64,
    /// 99% are below.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// A mean over seeds with the ends of its 95% interval (Student's t).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One request of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Arrival, microseconds from the start of the run.
    pub at_us: u64,
    /// Its task.
    pub task: String,
    /// The model that served it.
    pub model: String,
    /// The instance that served it; empty: no router found one.
    pub instance: String,
    /// Why it was chosen.
    pub reason: String,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Output tokens.
    pub output_tokens: u32,
    /// Predicted output tokens; absent: not predicted.
    pub predicted_output_tokens: Option<f64>,
    /// TTFT target, seconds; absent: none.
    pub target_s: Option<f64>,
    /// Predicted TTFT, seconds; absent: none.
    pub predicted_ttft_s: Option<f64>,
    /// What other estimators said of the chosen instance then, by name, seconds.
    pub other_ttft_s: BTreeMap<String, f64>,
    /// The latency that the policy itself believed, seconds; absent: it believes none.
    pub believed_latency_s: Option<f64>,
    /// TTFT, seconds; absent: no answer came.
    pub ttft_s: Option<f64>,
    /// Whole answer, seconds; absent: no answer came.
    pub e2e_s: Option<f64>,
    /// Whether its answers have scores.
    pub judged: bool,
    /// Score in `[0,1]`; absent: not judged, or no answer came.
    pub score: Option<f64>,
    /// Cost, USD.
    pub cost_usd: f64,
    /// Score − λ·cost (eq. 4, realised); absent: not judged.
    pub utility: Option<f64>,
}
