//! Predicted against realised: metrics, the request's span and log line, and the decision row.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tracing::Span;

use super::{
    error::status_class,
    receive::Received,
    spans::{self, StageTimes},
};
use crate::{
    domain::{Candidate, Decision, Ending, Now, Outcome, PromptCount, Timestamp},
    pool::{Pool, SettleSink},
    predict::QueryFeatures,
    store::{DecisionRow, LoggedQuery, Recorder},
    telemetry::names::{self, attribute, label, span},
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

/// Positions in [`InstanceMeters::targets`].
const MET: usize = 0;
const MISSED: usize = 1;
const UNOBSERVED: usize = 2;

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

    fn settled(&self, outcome: &Outcome, decision: &Decision, answers: u32) {
        let Some(meters) = self.instances.get(outcome.instance) else { return };
        meters.settled(outcome, decision, answers);
    }

    /// Judges a request by its last attempt.
    fn judge(&self, last: &Last) {
        let Some(meters) = self.instances.get(last.outcome.instance) else { return };
        meters.judge(last);
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

    fn settled(&self, outcome: &Outcome, decision: &Decision, answers: u32) {
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
            if let (Some(tokens), Ending::Complete) = (outcome.output_tokens, outcome.ending)
                && let Some(tpot_s) = time_per_token(outcome.e2e_s - ttft_s, tokens, answers)
            {
                self.tpot.record(tpot_s);
            }
            self.compare(ttft_s, chosen);
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

    fn judge(&self, last: &Last) {
        let Some(judged) = last.attainment() else { return };
        self.targets[judged].increment(1);
        if let (MET, Some(utility)) = (judged, last.utility) {
            self.on_time_utility.increment(utility);
        }
    }
}

/// Returns the seconds between two tokens of one answer, where `answers` of them run side by side; absent
/// where none has two.
fn time_per_token(decode_s: f64, output_tokens: u32, answers: u32) -> Option<f64> {
    let each_tokens = f64::from(output_tokens) / f64::from(answers.max(1));
    (each_tokens > 1.0).then(|| decode_s / (each_tokens - 1.0))
}

/// Hears of one attempt's end and writes it down.
pub(super) struct Attempted {
    pub(super) meters: Arc<Meters>,
    pub(super) recorder: Recorder,
    pub(super) decided_at: Timestamp,
    pub(super) query: LoggedQuery,
    /// Its first token can be seen: it is streamed, and a chat or a completion.
    pub(super) observable: bool,
    /// Answers asked for, over all prompts.
    pub(super) answers: u32,
    pub(super) features: Option<Arc<QueryFeatures>>,
    /// Where the operator keeps prompts.
    pub(super) prompt: Option<String>,
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
        self.meters.settled(outcome, &decision, self.answers);
        self.journey.note_outcome(outcome, &decision, self.observable);
        self.recorder.record(DecisionRow {
            decided_at: self.decided_at,
            decision,
            query: self.query.clone(),
            outcome: outcome.clone(),
            features: self.features.clone().map(Into::into),
            prompt: self.prompt.clone(),
            origin: None,
        });
    }
}

/// What a request's attempts and its end share.
pub(super) struct Shared {
    pub(super) span: Span,
    tpot_target_ms: OnceLock<f64>,
    last: Mutex<Option<Last>>,
}

/// The last settled attempt, as far as the request's judgement and its log line need it.
struct Last {
    outcome: Outcome,
    model: String,
    instance: String,
    reason: &'static str,
    predicted_ttft_s: Option<f64>,
    utility: Option<f64>,
    target_s: Option<f64>,
    observable: bool,
}

impl Last {
    /// Returns whether the target was met, missed or unobserved; absent without a target. A client that
    /// left before the target's end shows neither of the first two.
    fn attainment(&self) -> Option<usize> {
        let target_s = self.target_s?;
        let left = self.outcome.ending == Ending::Cancelled && self.outcome.e2e_s <= target_s;
        Some(match self.outcome.ttft_s {
            _ if !self.observable => UNOBSERVED,
            Some(ttft_s) if ttft_s <= target_s => MET,
            None if left => UNOBSERVED,
            _ => MISSED,
        })
    }
}

impl Shared {
    fn note_outcome(&self, outcome: &Outcome, decision: &Decision, observable: bool) {
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
            utility: chosen.and_then(|c| c.utility),
            target_s: decision.ttft_target_ms.map(|ms| ms / 1e3),
            observable,
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
            shared: Arc::new(Shared { span, tpot_target_ms: OnceLock::new(), last: Mutex::new(None) }),
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
    pub(super) fn asks(&self, received: &Received) {
        spans::note_request(&self.shared.span, &received.request);
        if let Some(target) = received.asks.tpot_target {
            let ms = *self.shared.tpot_target_ms.get_or_init(|| target.as_secs_f64() * 1e3);
            self.shared.span.record(attribute::TPOT_TARGET_MS, ms);
        }
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
            None if std::thread::panicking() => "5xx",
            None => "cancelled",
            Some(status) => status_class(status),
        };
        if let Some(last) = &last {
            // A refusal for the client's own fault tells nothing of the target.
            if status != "4xx" {
                self.meters.judge(last);
            }
            if self.refused.is_none() && matches!(last.outcome.ending, Ending::Failed | Ending::TimedOut) {
                spans::note_failure(&self.shared.span, last.outcome.ending.label());
            }
        }
        if status == "5xx" {
            spans::note_failure(&self.shared.span, self.refused.unwrap_or("panic"));
        }
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
            tpot_target_ms = self.shared.tpot_target_ms.get(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn last(ending: Ending, ttft_s: Option<f64>, e2e_s: f64) -> Last {
        Last {
            outcome: Outcome {
                attempt_id: String::new(),
                instance: 0,
                ending,
                ttft_s,
                e2e_s,
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: None,
                cost_usd: None,
            },
            model: String::new(),
            instance: String::new(),
            reason: "",
            predicted_ttft_s: None,
            utility: None,
            target_s: Some(1.0),
            observable: true,
        }
    }

    #[test]
    fn a_target_is_met_missed_or_unobserved() {
        for (ending, ttft_s, e2e_s, want) in [
            (Ending::Complete, Some(0.5), 9.0, MET),
            (Ending::Cancelled, Some(0.5), 9.0, MET),
            (Ending::Failed, Some(1.5), 9.0, MISSED),
            (Ending::Complete, None, 9.0, MISSED),
            (Ending::Failed, None, 0.1, MISSED),
            (Ending::TimedOut, None, 9.0, MISSED),
            (Ending::Cancelled, None, 0.5, UNOBSERVED),
            (Ending::Cancelled, None, 9.0, MISSED),
        ] {
            assert_eq!(last(ending, ttft_s, e2e_s).attainment(), Some(want), "{ending:?} {ttft_s:?} {e2e_s}");
        }
        let whole = Last { observable: false, ..last(Ending::Complete, None, 9.0) };
        assert_eq!(whole.attainment(), Some(UNOBSERVED));
        let free = Last { target_s: None, ..last(Ending::Complete, None, 9.0) };
        assert_eq!(free.attainment(), None);
    }

    #[test]
    fn answers_side_by_side_share_their_time() {
        assert_eq!(time_per_token(1.0, 11, 1), Some(0.1));
        assert_eq!(time_per_token(1.0, 44, 4), Some(0.1));
        assert_eq!(time_per_token(1.0, 4, 4), None);
        assert_eq!(time_per_token(1.0, 1, 1), None);
    }
}
