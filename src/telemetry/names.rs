//! Every metric, span and attribute name, with kind, unit, help and bounded labels.
//!
//! Prometheus names start with `bear_`. No label value is ever chosen by a client: models, instances
//! and policies come from the configuration, the rest from enumerations in the code.

/// What a metric's numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, whole numbers.
    Counter,
    /// A present value, or a sum whose terms may be negative or fractional.
    Gauge,
    /// A distribution, with the buckets of [`Metric::buckets`].
    Histogram,
}

/// The unit of a metric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Tokens.
    Tokens,
    /// US dollars.
    Usd,
    /// A share or a ratio.
    Ratio,
    /// A count of things.
    Count,
}

/// One metric as it is described and fed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its Prometheus name.
    pub name: &'static str,
    /// What its numbers mean.
    pub kind: Kind,
    /// Their unit.
    pub unit: Unit,
    /// What it tells, one sentence.
    pub help: &'static str,
    /// The labels it carries, of [`label`].
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, ascending; empty otherwise.
    pub buckets: &'static [f64],
}

/// Label names.
pub mod label {
    /// A configured model.
    pub const MODEL: &str = "model";
    /// A configured instance.
    pub const INSTANCE: &str = "instance";
    /// A registered policy.
    pub const POLICY: &str = "policy";
    /// Why an instance was chosen (`domain::Reason`), or why a request was shed.
    pub const REASON: &str = "reason";
    /// `2xx`, `4xx`, `5xx`, or `cancelled` when the client left first.
    pub const STATUS: &str = "status";
    /// `chat`, `completions` or `other`.
    pub const ENDPOINT: &str = "endpoint";
    /// The estimator behind a TTFT (`domain::EstimateSource`).
    pub const ESTIMATOR: &str = "estimator";
    /// A step of the decision (`router::Stage`), or `total`.
    pub const STAGE: &str = "stage";
    /// How something came out (`met`, `missed`, `unobserved`; `written`, …).
    pub const OUTCOME: &str = "outcome";
    /// `prompt`, `cached` or `output` tokens.
    pub const KIND: &str = "kind";
    /// What made something happen (`full`, `memory`, `rejected`, `shutdown`; `connect`, `timeout`, `status`, …).
    pub const CAUSE: &str = "cause";
    /// How prompt tokens were counted (`domain::CountSource`).
    pub const SOURCE: &str = "source";
    /// The version of a loaded bundle.
    pub const VERSION: &str = "version";
}

/// Buckets of times to first token: the paper's targets lie between 0.1 and 1.2 s, overload far beyond.
const TTFT_S: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
];
/// Buckets of times an output token.
const TPOT_S: &[f64] =
    &[0.002, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0];
/// Buckets of whole answers.
const E2E_S: &[f64] =
    &[0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Buckets of decision steps: a decision is to take tens of microseconds.
const DECISION_S: &[f64] = &[
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25,
    1.0,
];
/// Buckets of (realised − predicted) / realised.
const RELATIVE_ERROR: &[f64] =
    &[-2.0, -1.0, -0.5, -0.25, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0];
/// Buckets of small counts.
const COUNTS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0];

const fn counter(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    labels: &'static [&'static str],
) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, labels, buckets: &[] }
}

const fn gauge(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    labels: &'static [&'static str],
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, labels, buckets: &[] }
}

const fn histogram(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    labels: &'static [&'static str],
    buckets: &'static [f64],
) -> Metric {
    Metric { name, kind: Kind::Histogram, unit, help, labels, buckets }
}

/// Breaker state.
pub const BREAKER: Metric = gauge(
    "bear_breaker_state",
    Unit::Count,
    "Breaker of an instance: 0 closed, 1 half open (one probe goes or is out), 2 open.",
    &[label::INSTANCE],
);
/// Requests answered.
pub const REQUESTS: Metric = counter(
    "bear_requests_total",
    Unit::Count,
    "Requests answered, by API, the model that served them (none: refused before routing) and status class.",
    &[label::ENDPOINT, label::MODEL, label::STATUS],
);
/// Requests being served.
pub const REQUESTS_IN_FLIGHT: Metric =
    gauge("bear_requests_in_flight", Unit::Count, "Requests received and not yet answered in full.", &[]);
/// Decisions taken.
pub const DECISIONS: Metric = counter(
    "bear_decisions_total",
    Unit::Count,
    "Routing decisions, retries included, by policy, chosen model and instance, and the reason for the choice.",
    &[label::POLICY, label::MODEL, label::INSTANCE, label::REASON],
);
/// Realised TTFT.
pub const TTFT: Metric = histogram(
    "bear_ttft_seconds",
    Unit::Seconds,
    "Time from the complete request to the first content, streamed requests only.",
    &[label::MODEL, label::INSTANCE],
    TTFT_S,
);
/// Realised TPOT.
pub const TPOT: Metric = histogram(
    "bear_tpot_seconds",
    Unit::Seconds,
    "Mean time an output token after the first, streamed requests only.",
    &[label::MODEL, label::INSTANCE],
    TPOT_S,
);
/// Realised end-to-end time.
pub const E2E: Metric = histogram(
    "bear_e2e_seconds",
    Unit::Seconds,
    "Time from the complete request to the end of the answer.",
    &[label::MODEL, label::INSTANCE],
    E2E_S,
);
/// Predicted TTFT.
pub const PREDICTED_TTFT: Metric = histogram(
    "bear_predicted_ttft_seconds",
    Unit::Seconds,
    "TTFT predicted for the chosen instance.",
    &[label::INSTANCE, label::ESTIMATOR],
    TTFT_S,
);
/// Relative TTFT error.
pub const TTFT_RELATIVE_ERROR: Metric = histogram(
    "bear_ttft_relative_error",
    Unit::Ratio,
    "(realised - predicted) / realised TTFT of streamed requests; negative: predicted too long.",
    &[label::INSTANCE, label::ESTIMATOR],
    RELATIVE_ERROR,
);
/// Targets met and missed.
pub const TTFT_TARGETS: Metric = counter(
    "bear_ttft_targets_total",
    Unit::Count,
    "Requests with a TTFT target, by whether it was met, missed, or unobserved because nothing was streamed.",
    &[label::MODEL, label::INSTANCE, label::OUTCOME],
);
/// Sum of utilities of on-time requests.
pub const ON_TIME_UTILITY: Metric = gauge(
    "bear_on_time_utility_sum",
    Unit::Ratio,
    "Sum of the predicted utilities of requests that met their TTFT target; terms may be negative.",
    &[label::MODEL],
);
/// Sum of realised costs.
pub const COST: Metric = gauge(
    "bear_cost_usd_sum",
    Unit::Usd,
    "Sum of realised costs where usage is known.",
    &[label::MODEL, label::INSTANCE],
);
/// Tokens served.
pub const TOKENS: Metric = counter(
    "bear_tokens_total",
    Unit::Tokens,
    "Tokens by the engine's usage, else counted from the stream.",
    &[label::MODEL, label::INSTANCE, label::KIND],
);
/// How prompts were counted.
pub const PROMPT_COUNTS: Metric = counter(
    "bear_prompt_counts_total",
    Unit::Count,
    "Prompts sized for routing, by how their tokens were counted.",
    &[label::MODEL, label::SOURCE],
);
/// Decision time by stage.
pub const DECISION: Metric = histogram(
    "bear_decision_seconds",
    Unit::Seconds,
    "Time a step of the routing decision takes; stage total is the whole.",
    &[label::STAGE],
    DECISION_S,
);
/// Feasible-set size.
pub const FEASIBLE: Metric = histogram(
    "bear_feasible_instances",
    Unit::Count,
    "Instances found feasible for a request among those estimated.",
    &[label::POLICY],
    COUNTS,
);
/// Snapshot age.
pub const SNAPSHOT_AGE: Metric = gauge(
    "bear_snapshot_age_seconds",
    Unit::Seconds,
    "Age of the newest complete snapshot of an instance.",
    &[label::INSTANCE],
);
/// Snapshots taken or refused.
pub const SNAPSHOTS: Metric = counter(
    "bear_snapshots_total",
    Unit::Count,
    "Snapshots by outcome: accepted, ignored (not newer than the one at hand), refused (implausible).",
    &[label::INSTANCE, label::OUTCOME],
);
/// Ledger requests.
pub const LEDGER_REQUESTS: Metric = gauge(
    "bear_ledger_requests",
    Unit::Count,
    "Requests this router has in flight on an instance.",
    &[label::INSTANCE],
);
/// Ledger tokens.
pub const LEDGER_TOKENS: Metric = gauge(
    "bear_ledger_prefill_tokens",
    Unit::Tokens,
    "Uncached prompt tokens in flight on an instance that have not produced a first token.",
    &[label::INSTANCE],
);
/// Retries.
pub const RETRIES: Metric = counter(
    "bear_retries_total",
    Unit::Count,
    "Attempts repeated elsewhere before the first byte, by the instance that failed and why.",
    &[label::INSTANCE, label::CAUSE],
);
/// Whether an instance may be chosen.
pub const USABLE: Metric = gauge(
    "bear_instance_usable",
    Unit::Count,
    "1 while an instance may be chosen, 0 while it drains or its breaker is open or probing.",
    &[label::INSTANCE],
);
/// Shed requests.
pub const SHED: Metric = counter(
    "bear_shed_total",
    Unit::Count,
    "Requests refused without being sent upstream, by reason.",
    &[label::REASON],
);
/// Store queue depth.
pub const STORE_QUEUE: Metric =
    gauge("bear_store_queue_rows", Unit::Count, "Decision rows waiting to be written.", &[]);
/// Rows written.
pub const STORE_WRITTEN: Metric =
    counter("bear_store_written_total", Unit::Count, "Decision rows written to the store.", &[]);
/// Rows dropped.
pub const STORE_DROPPED: Metric = counter(
    "bear_store_dropped_total",
    Unit::Count,
    "Decision rows lost: queue full by rows (full) or by bytes (memory), rejected by the store, or unwritten at shutdown.",
    &[label::CAUSE],
);
/// Store health.
pub const STORE_UP: Metric =
    gauge("bear_store_up", Unit::Count, "1 while the store takes rows, 0 while it fails.", &[]);
/// Predictor version.
pub const PREDICTOR_INFO: Metric = gauge(
    "bear_predictor_info",
    Unit::Count,
    "Always 1; its label names the predictors in use.",
    &[label::VERSION],
);

/// Every metric, sorted by name.
pub const METRICS: &[&Metric] = &[
    &BREAKER,
    &COST,
    &DECISION,
    &DECISIONS,
    &E2E,
    &FEASIBLE,
    &USABLE,
    &LEDGER_TOKENS,
    &LEDGER_REQUESTS,
    &ON_TIME_UTILITY,
    &PREDICTED_TTFT,
    &PREDICTOR_INFO,
    &PROMPT_COUNTS,
    &REQUESTS_IN_FLIGHT,
    &REQUESTS,
    &RETRIES,
    &SHED,
    &SNAPSHOT_AGE,
    &SNAPSHOTS,
    &STORE_DROPPED,
    &STORE_QUEUE,
    &STORE_UP,
    &STORE_WRITTEN,
    &TOKENS,
    &TPOT,
    &TTFT_RELATIVE_ERROR,
    &TTFT,
    &TTFT_TARGETS,
];

/// Span names: one span a request with a child span a step.
pub mod span {
    /// The whole request.
    pub const REQUEST: &str = "bear.request";
    /// Authenticating, bounding and parsing the body.
    pub const RECEIVE: &str = "bear.receive";
    /// Counting, hashing and featurising the prompt.
    pub const DESCRIBE: &str = "bear.describe";
    /// One attempt's routing, around the stages below.
    pub const ROUTE: &str = "bear.route";
    /// Finding who may serve it.
    pub const ELIGIBLE: &str = "bear.eligible";
    /// Predicting accuracy, length and cost.
    pub const PREDICT: &str = "bear.predict";
    /// Taking a view of each instance.
    pub const OBSERVE: &str = "bear.observe";
    /// Estimating TTFT.
    pub const ESTIMATE: &str = "bear.estimate";
    /// The policy's choice.
    pub const DECIDE: &str = "bear.decide";
    /// Ranking interchangeable instances.
    pub const AFFINITY: &str = "bear.affinity";
    /// Joining the instance's ledger.
    pub const RESERVE: &str = "bear.reserve";
    /// One attempt upstream, to the end of its stream.
    pub const FORWARD: &str = "bear.forward";
    /// Comparing predicted with realised.
    pub const SETTLE: &str = "bear.settle";
}

/// Span attribute names: OpenTelemetry's generative-AI, HTTP and server conventions, and our own.
pub mod attribute {
    /// Overrides the exported span name (read by `tracing-opentelemetry`).
    pub const OTEL_NAME: &str = "otel.name";
    /// The exported span kind (read by `tracing-opentelemetry`).
    pub const OTEL_KIND: &str = "otel.kind";
    /// The exported status (read by `tracing-opentelemetry`): `OK` or `ERROR`.
    pub const OTEL_STATUS: &str = "otel.status_code";
    /// `chat` or `text_completion`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// Whose API the instances speak.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// The model the client asked for, where it is a known one.
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    /// The client's cap on output tokens.
    pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    /// The answers asked for.
    pub const REQUEST_CHOICES: &str = "gen_ai.request.choice.count";
    /// The model that answered.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// Prompt tokens used.
    pub const USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Of these, read from a prefix cache.
    pub const USAGE_CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// Output tokens used.
    pub const USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// The request's HTTP method.
    pub const HTTP_METHOD: &str = "http.request.method";
    /// The HTTP status sent to the client.
    pub const HTTP_STATUS: &str = "http.response.status_code";
    /// The matched route, such as `/v1/chat/completions`.
    pub const HTTP_ROUTE: &str = "http.route";
    /// The kind of failure.
    pub const ERROR_TYPE: &str = "error.type";
    /// The upstream's address.
    pub const SERVER_ADDRESS: &str = "server.address";
    /// The id echoed to the client.
    pub const REQUEST_ID: &str = "bear.request_id";
    /// The id sent upstream.
    pub const ATTEMPT_ID: &str = "bear.attempt_id";
    /// Which attempt of the request, from 1.
    pub const ATTEMPT: &str = "bear.attempt";
    /// The chosen instance.
    pub const INSTANCE: &str = "bear.instance";
    /// The policy.
    pub const POLICY: &str = "bear.policy";
    /// Why the choice.
    pub const REASON: &str = "bear.reason";
    /// λ in force, per USD.
    pub const LAMBDA: &str = "bear.lambda_per_usd";
    /// δ in force, per second.
    pub const DELTA: &str = "bear.delta_per_s";
    /// TTFT target, milliseconds.
    pub const TTFT_TARGET_MS: &str = "bear.ttft_target_ms";
    /// TPOT target, milliseconds.
    pub const TPOT_TARGET_MS: &str = "bear.tpot_target_ms";
    /// Predicted TTFT, milliseconds.
    pub const PREDICTED_TTFT_MS: &str = "bear.predicted.ttft_ms";
    /// Predicted output tokens.
    pub const PREDICTED_OUTPUT_TOKENS: &str = "bear.predicted.output_tokens";
    /// Predicted accuracy.
    pub const PREDICTED_ACCURACY: &str = "bear.predicted.accuracy";
    /// Predicted cost, USD.
    pub const PREDICTED_COST_USD: &str = "bear.predicted.cost_usd";
    /// Predicted utility.
    pub const PREDICTED_UTILITY: &str = "bear.predicted.utility";
    /// Realised TTFT, milliseconds.
    pub const TTFT_MS: &str = "bear.ttft_ms";
    /// Realised cost, USD.
    pub const COST_USD: &str = "bear.cost_usd";
    /// How the attempt ended.
    pub const ENDING: &str = "bear.ending";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_unique_and_follow_the_conventions() {
        assert!(METRICS.is_sorted_by(|a, b| a.name < b.name), "sorted by name, no two alike");
        for metric in METRICS {
            assert!(metric.name.starts_with("bear_"), "{}", metric.name);
            assert!(!metric.help.is_empty() && metric.help.ends_with('.'), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            assert_eq!(metric.buckets.is_empty(), metric.kind != Kind::Histogram, "{}", metric.name);
            assert!(metric.buckets.is_sorted_by(|a, b| a < b), "{}", metric.name);
            if metric.unit == Unit::Seconds {
                assert!(metric.name.ends_with("_seconds"), "{}", metric.name);
            }
        }
    }
}
