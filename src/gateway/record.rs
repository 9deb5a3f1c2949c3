//! Predicted against realised: metrics, the request's span and log line, and the decision row.

use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tracing::Span;

use super::spans::{self, StageTimes};
use crate::{
    domain::{Candidate, Decision, Ending, Now, Outcome, PromptCount, Timestamp},
    pool::{Pool, SettleSink},
    predict::QueryFeatures,
    store::{DecisionRow, LoggedQuery, Recorder},
    telemetry::names::{self, attribute, label, span},
    wire::openai,
};

/// Metric handles that would otherwise be looked up for each request.
pub(super) struct Meters {
    instances: Vec<InstanceMeters>,
    models: Vec<String>,
    pub(super) stages: StageTimes,
    pub(super) decision: Histogram,
    in_flight: Gauge,
}

struct InstanceMeters {
    instance: String,
    ttft: Histogram,
    tpot: Histogram,
    e2e: Histogram,
    cost: Gauge,
    on_time_utility: Gauge,
    tokens: [Counter; 3],
    targets: [Counter; 3],
}

impl Meters {
    /// Makes the handles on the recorder installed now.
    pub(super) fn new(pool: &Pool) -> Self {
        let instances = (0..pool.len()).map(|i| {
            let spec = pool.spec(i);
            InstanceMeters::new(pool.models()[spec.model.0].id.as_str(), spec.id.as_str())
        });
        let stage = |stage: &'static str| histogram!(names::DECISION.name, label::STAGE => stage);
        Self {
            instances: instances.collect(),
            models: pool.models().iter().map(|model| model.id.to_string()).collect(),
            stages: StageTimes::new(stage),
            decision: stage("total"),
            in_flight: gauge!(names::REQUESTS_IN_FLIGHT.name),
        }
    }

    /// Counts how a prompt was sized under the models that matter to it.
    pub(super) fn counted(&self, prompts: &[PromptCount], wanted: Option<usize>) {
        for (i, (count, model)) in prompts.iter().zip(&self.models).enumerate() {
            if wanted.is_none_or(|only| only == i) {
                let source = count.source.label();
                counter!(names::PROMPT_COUNTS.name, label::MODEL => model.clone(), label::SOURCE => source)
                    .increment(1);
            }
        }
    }

    /// Counts a decision.
    pub(super) fn decided(&self, decision: &Decision, decision_s: f64) {
        self.decision.record(decision_s);
        let feasible = decision.candidates.iter().filter(|row| row.feasible == Some(true)).count();
        histogram!(names::FEASIBLE.name, label::POLICY => decision.policy.clone()).record(feasible as f64);
        let Some(chosen) = decision.chosen() else { return };
        counter!(
            names::DECISIONS.name,
            label::POLICY => decision.policy.clone(),
            label::MODEL => chosen.model.clone(),
            label::INSTANCE => chosen.instance.to_string(),
            label::REASON => decision.reason.label()
        )
        .increment(1);
        if let (Some(ttft_s), Some(source)) = (chosen.ttft_s, &chosen.source) {
            histogram!(
                names::PREDICTED_TTFT.name,
                label::INSTANCE => chosen.instance.to_string(),
                label::ESTIMATOR => source.clone()
            )
            .record(ttft_s);
        }
    }

    /// Counts an attempt repeated elsewhere.
    pub(super) fn retried(&self, instance: usize, cause: &'static str) {
        let Some(meters) = self.instances.get(instance) else { return };
        counter!(names::RETRIES.name, label::INSTANCE => meters.instance.clone(), label::CAUSE => cause)
            .increment(1);
    }

    /// Shows the ledgers' present totals.
    pub(super) fn show_ledgers(&self, pool: &Pool) {
        for (i, meters) in self.instances.iter().enumerate() {
            let load = pool.load(i);
            gauge!(names::LEDGER_REQUESTS.name, label::INSTANCE => meters.instance.clone())
                .set(f64::from(load.requests));
            gauge!(names::LEDGER_TOKENS.name, label::INSTANCE => meters.instance.clone())
                .set(load.uncached_prefill_tokens as f64);
        }
    }

    fn settled(&self, outcome: &Outcome, decision: &Decision) {
        let Some(meters) = self.instances.get(outcome.instance) else { return };
        meters.settled(outcome, decision);
    }
}

impl InstanceMeters {
    fn new(model: &str, instance: &str) -> Self {
        let (model, instance) = (model.to_owned(), instance.to_owned());
        let both = || [(label::MODEL, model.clone()), (label::INSTANCE, instance.clone())];
        let with = |name: &'static str, value: &'static str| {
            [(label::MODEL, model.clone()), (label::INSTANCE, instance.clone()), (name, value.to_owned())]
        };
        Self {
            ttft: histogram!(names::TTFT.name, &both()),
            tpot: histogram!(names::TPOT.name, &both()),
            e2e: histogram!(names::E2E.name, &both()),
            cost: gauge!(names::COST.name, &both()),
            on_time_utility: gauge!(names::ON_TIME_UTILITY.name, label::MODEL => model.clone()),
            tokens: ["prompt", "cached", "output"]
                .map(|kind| counter!(names::TOKENS.name, &with(label::KIND, kind))),
            targets: ["met", "missed", "unobserved"]
                .map(|how| counter!(names::TTFT_TARGETS.name, &with(label::OUTCOME, how))),
            instance,
        }
    }

    fn settled(&self, outcome: &Outcome, decision: &Decision) {
        if outcome.ending == Ending::Complete {
            self.e2e.record(outcome.e2e_s);
        }
        for (counter, tokens) in
            self.tokens.iter().zip([outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens])
        {
            counter.increment(u64::from(tokens.unwrap_or(0)));
        }
        if let Some(cost_usd) = outcome.cost_usd {
            self.cost.increment(cost_usd);
        }
        let chosen = decision.chosen();
        if let Some(ttft_s) = outcome.ttft_s {
            self.ttft.record(ttft_s);
            if let (Some(tokens @ 2..), Ending::Complete) = (outcome.output_tokens, outcome.ending) {
                self.tpot.record((outcome.e2e_s - ttft_s) / f64::from(tokens - 1));
            }
            self.compare(ttft_s, chosen);
        }
        if let Some(target_ms) = decision.ttft_target_ms {
            self.judge(target_ms / 1e3, outcome, chosen);
        }
    }

    fn compare(&self, ttft_s: f64, chosen: Option<&Candidate>) {
        let Some(chosen) = chosen else { return };
        if let (Some(predicted_s), Some(source)) = (chosen.ttft_s, &chosen.source)
            && ttft_s > 0.0
        {
            histogram!(
                names::TTFT_RELATIVE_ERROR.name,
                label::INSTANCE => self.instance.clone(),
                label::ESTIMATOR => source.clone()
            )
            .record((ttft_s - predicted_s) / ttft_s);
        }
    }

    /// Counts a target as met, missed or unobserved. A client that left before the target's end
    /// shows neither.
    fn judge(&self, target_s: f64, outcome: &Outcome, chosen: Option<&Candidate>) {
        let judged = match outcome.ttft_s {
            Some(ttft_s) if ttft_s <= target_s => 0,
            Some(_) => 1,
            None if outcome.ending == Ending::TimedOut => 1,
            None => 2,
        };
        self.targets[judged].increment(1);
        if judged == 0
            && let Some(utility) = chosen.and_then(|chosen| chosen.utility)
        {
            self.on_time_utility.increment(utility);
        }
    }
}

/// Hears of one attempt's end and writes it down.
pub(super) struct Attempted {
    pub(super) meters: Arc<Meters>,
    pub(super) recorder: Recorder,
    pub(super) decided_at: Timestamp,
    pub(super) query: LoggedQuery,
    pub(super) features: Option<Arc<QueryFeatures>>,
    pub(super) request: Arc<openai::Request>,
    pub(super) journey: Arc<Shared>,
    /// Set once routed; taken at the end.
    pub(super) decision: Mutex<Option<Decision>>,
}

impl Attempted {
    /// Takes the decision that the attempt follows.
    pub(super) fn follow(&self, decision: Decision) {
        *self.decision.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
    }
}

impl SettleSink for Attempted {
    fn settled(&self, outcome: &Outcome) {
        let decision = self.decision.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(decision) = decision else { return };
        let _settling = tracing::info_span!(parent: &self.journey.span, span::SETTLE).entered();
        self.meters.settled(outcome, &decision);
        self.journey.note_outcome(outcome, &decision);
        self.recorder.record(DecisionRow {
            decided_at: self.decided_at,
            decision,
            query: self.query.clone(),
            outcome: outcome.clone(),
            features: self.features.clone().map(Into::into),
            prompt: self.recorder.keeps_prompts().then(|| self.request.prompt_text()),
            origin: None,
        });
    }
}

/// What a request's attempts and its end share.
pub(super) struct Shared {
    pub(super) span: Span,
    last: Mutex<Option<Last>>,
}

/// The last settled attempt, as far as the log line needs it.
struct Last {
    outcome: Outcome,
    model: String,
    instance: String,
    reason: &'static str,
    predicted_ttft_s: Option<f64>,
}

impl Shared {
    fn note_outcome(&self, outcome: &Outcome, decision: &Decision) {
        self.span.record(attribute::ENDING, outcome.ending.label());
        for (name, value) in
            [(attribute::TTFT_MS, outcome.ttft_s.map(|s| s * 1e3)), (attribute::COST_USD, outcome.cost_usd)]
        {
            if let Some(value) = value {
                self.span.record(name, value);
            }
        }
        for (name, tokens) in [
            (attribute::USAGE_INPUT_TOKENS, outcome.prompt_tokens),
            (attribute::USAGE_CACHED_TOKENS, outcome.cached_tokens),
            (attribute::USAGE_OUTPUT_TOKENS, outcome.output_tokens),
        ] {
            if let Some(tokens) = tokens {
                self.span.record(name, tokens);
            }
        }
        let chosen = decision.chosen();
        let last = Last {
            outcome: outcome.clone(),
            model: chosen.map(|c| c.model.clone()).unwrap_or_default(),
            instance: chosen.map(|c| c.instance.to_string()).unwrap_or_default(),
            reason: decision.reason.label(),
            predicted_ttft_s: chosen.and_then(|c| c.ttft_s),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

/// One request from its receipt to its end; counts and logs itself once, when dropped.
pub(super) struct Journey {
    pub(super) shared: Arc<Shared>,
    meters: Arc<Meters>,
    clock: Arc<dyn Now>,
    request_id: String,
    endpoint: &'static str,
    started: Timestamp,
    status: Option<StatusCode>,
    refused: Option<&'static str>,
}

impl Journey {
    /// Begins a request.
    pub(super) fn begin(
        meters: &Arc<Meters>,
        clock: &Arc<dyn Now>,
        request_id: &str,
        (endpoint, route): (&'static str, &'static str),
    ) -> Self {
        meters.in_flight.increment(1);
        let operation = if endpoint == "completions" { "text_completion" } else { endpoint };
        let span = spans::request(route, operation, request_id);
        Self {
            shared: Arc::new(Shared { span, last: Mutex::new(None) }),
            meters: Arc::clone(meters),
            clock: Arc::clone(clock),
            request_id: request_id.to_owned(),
            endpoint,
            started: clock.now(),
            status: None,
            refused: None,
        }
    }

    /// Notes what was asked for.
    pub(super) fn asks(&self, asked: &openai::Request) {
        spans::note_request(&self.shared.span, asked);
    }

    /// Notes the status that the client gets.
    pub(super) fn answers(&mut self, status: StatusCode) {
        self.shared.span.record(attribute::HTTP_STATUS, status.as_u16());
        self.status = Some(status);
    }

    /// Notes a refusal, by rule; `shed`: the request never went upstream for want of an instance.
    pub(super) fn refuses(&mut self, status: StatusCode, rule: &'static str, shed: bool) {
        self.answers(status);
        self.refused = Some(rule);
        self.shared.span.record(attribute::ERROR_TYPE, rule);
        if shed {
            counter!(names::SHED.name, label::REASON => rule).increment(1);
        }
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        self.meters.in_flight.decrement(1);
        let last = self.shared.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let left = last.as_ref().is_some_and(|last| last.outcome.ending == Ending::Cancelled);
        let status = match self.status {
            _ if left && self.refused.is_none() => "cancelled",
            None => "cancelled",
            Some(status) if status.is_server_error() => "5xx",
            Some(status) if status.is_client_error() => "4xx",
            Some(_) => "2xx",
        };
        let model = last.as_ref().map_or("none", |last| last.model.as_str());
        counter!(
            names::REQUESTS.name,
            label::ENDPOINT => self.endpoint,
            label::MODEL => model.to_owned(),
            label::STATUS => status
        )
        .increment(1);
        let outcome = last.as_ref().map(|last| &last.outcome);
        let ms = |s: f64| (s * 1e4).round() / 10.0;
        tracing::info!(
            parent: &self.shared.span,
            request_id = self.request_id,
            endpoint = self.endpoint,
            status = self.status.map(|s| s.as_u16()),
            model,
            instance = last.as_ref().map(|last| last.instance.as_str()),
            reason = last.as_ref().map(|last| last.reason),
            refused = self.refused,
            ending = outcome.map(|o| o.ending.label()),
            predicted_ttft_ms = last.as_ref().and_then(|last| last.predicted_ttft_s).map(ms),
            ttft_ms = outcome.and_then(|o| o.ttft_s).map(ms),
            took_ms = ms(self.clock.now().since(self.started).as_secs_f64()),
            prompt_tokens = outcome.and_then(|o| o.prompt_tokens),
            output_tokens = outcome.and_then(|o| o.output_tokens),
            cost_usd = outcome.and_then(|o| o.cost_usd),
            "request {status}"
        );
    }
}
