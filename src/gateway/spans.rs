//! Spans and step times: one span a request, a child a step.

use std::cell::RefCell;

use http::HeaderMap;
use metrics::Histogram;
use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    trace::{SpanContext, TraceContextExt, TraceState},
};
use tracing::{Span, info_span, span::EnteredSpan};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{
    domain::Decision,
    router::{Stage, StageObserver},
    telemetry::{
        clock::Stopwatch,
        names::{attribute, span},
    },
    wire::openai,
};

/// Opens the span of one request, named as OpenTelemetry's HTTP conventions have it.
pub(super) fn request(route: &str, operation: &'static str, request_id: &str) -> Span {
    info_span!(
        span::REQUEST,
        { attribute::OTEL_NAME } = format!("POST {route}").as_str(),
        { attribute::OTEL_KIND } = "server",
        { attribute::OTEL_STATUS } = tracing::field::Empty,
        { attribute::HTTP_METHOD } = "POST",
        { attribute::PROVIDER } = "openai",
        { attribute::REQUEST_MODEL } = tracing::field::Empty,
        { attribute::REQUEST_MAX_TOKENS } = tracing::field::Empty,
        { attribute::REQUEST_CHOICES } = tracing::field::Empty,
        { attribute::OPERATION } = operation,
        { attribute::HTTP_ROUTE } = route,
        { attribute::REQUEST_ID } = request_id,
        { attribute::HTTP_STATUS } = tracing::field::Empty,
        { attribute::ERROR_TYPE } = tracing::field::Empty,
        { attribute::RESPONSE_MODEL } = tracing::field::Empty,
        { attribute::INSTANCE } = tracing::field::Empty,
        { attribute::POLICY } = tracing::field::Empty,
        { attribute::REASON } = tracing::field::Empty,
        { attribute::LAMBDA } = tracing::field::Empty,
        { attribute::DELTA } = tracing::field::Empty,
        { attribute::TTFT_TARGET_MS } = tracing::field::Empty,
        { attribute::TPOT_TARGET_MS } = tracing::field::Empty,
        { attribute::PREDICTED_TTFT_MS } = tracing::field::Empty,
        { attribute::PREDICTED_OUTPUT_TOKENS } = tracing::field::Empty,
        { attribute::PREDICTED_ACCURACY } = tracing::field::Empty,
        { attribute::PREDICTED_COST_USD } = tracing::field::Empty,
        { attribute::PREDICTED_UTILITY } = tracing::field::Empty,
        { attribute::USAGE_INPUT_TOKENS } = tracing::field::Empty,
        { attribute::USAGE_CACHED_TOKENS } = tracing::field::Empty,
        { attribute::USAGE_OUTPUT_TOKENS } = tracing::field::Empty,
        { attribute::TTFT_MS } = tracing::field::Empty,
        { attribute::COST_USD } = tracing::field::Empty,
        { attribute::ENDING } = tracing::field::Empty,
    )
}

/// Makes the request's span a child of the caller's, by its W3C `traceparent`.
pub(super) fn follow_trace(request: &Span, headers: &HeaderMap) {
    let Some(parent) = headers.get("traceparent").and_then(|value| trace_parent(value.to_str().ok()?)) else {
        return;
    };
    // It fails where no tracer listens; there is nothing to follow then.
    let _followed = request.set_parent(Context::new().with_remote_span_context(parent));
}

/// Reads `00-<trace id>-<span id>-<flags>`.
fn trace_parent(value: &str) -> Option<SpanContext> {
    let mut parts = value.trim().split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version.len() != 2 || version == "ff" || trace.len() != 32 || parent.len() != 16 {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(parent).ok()?,
        flags,
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

/// Notes what was asked for in the request's span; the model is a known one by now.
pub(super) fn note_request(span: &Span, asked: &openai::Request) {
    span.record(attribute::REQUEST_MODEL, asked.model.as_str());
    span.record(attribute::REQUEST_CHOICES, asked.n);
    if let Some(tokens) = asked.max_tokens {
        span.record(attribute::REQUEST_MAX_TOKENS, tokens);
    }
}

/// Notes in a span that what it covers failed, and by what.
pub(super) fn note_failure(span: &Span, kind: &str) {
    span.record(attribute::OTEL_STATUS, "ERROR");
    span.record(attribute::ERROR_TYPE, kind);
}

/// Notes a decision in the request's span.
pub(super) fn note_decision(request: &Span, decision: &Decision) {
    request.record(attribute::POLICY, decision.policy.as_str());
    request.record(attribute::REASON, decision.reason.label());
    request.record(attribute::LAMBDA, decision.lambda_per_usd);
    request.record(attribute::DELTA, decision.delta_per_s);
    if let Some(target_ms) = decision.ttft_target_ms {
        request.record(attribute::TTFT_TARGET_MS, target_ms);
    }
    let Some(chosen) = decision.chosen() else { return };
    request.record(attribute::RESPONSE_MODEL, chosen.model.as_str());
    request.record(attribute::INSTANCE, chosen.instance.as_str());
    for (name, value) in [
        (attribute::PREDICTED_TTFT_MS, chosen.ttft_s.map(|s| s * 1e3)),
        (attribute::PREDICTED_OUTPUT_TOKENS, chosen.output_tokens),
        (attribute::PREDICTED_ACCURACY, chosen.accuracy),
        (attribute::PREDICTED_COST_USD, chosen.cost_usd),
        (attribute::PREDICTED_UTILITY, chosen.utility),
    ] {
        if let Some(value) = value {
            request.record(name, value);
        }
    }
}

/// Times each step of a decision and puts a span around it.
pub(super) struct Stages<'a> {
    histograms: &'a StageTimes,
    open: RefCell<Vec<(Stopwatch, Option<EnteredSpan>)>>,
}

/// The histograms of the steps.
pub(super) struct StageTimes([Histogram; 7]);

/// The steps in the order of [`StageTimes`].
const STAGES: [Stage; 7] = [
    Stage::Eligible,
    Stage::Predict,
    Stage::Observe,
    Stage::Estimate,
    Stage::Decide,
    Stage::Affinity,
    Stage::Reserve,
];

impl StageTimes {
    /// Makes one histogram a step.
    pub(super) fn new(make: impl Fn(&'static str) -> Histogram) -> Self {
        Self(STAGES.map(|stage| make(stage.label())))
    }

    fn of(&self, stage: Stage) -> Option<&Histogram> {
        STAGES.iter().position(|s| *s == stage).map(|i| &self.0[i])
    }
}

impl<'a> Stages<'a> {
    /// Starts observing one decision.
    pub(super) fn new(histograms: &'a StageTimes) -> Self {
        Self { histograms, open: RefCell::new(Vec::with_capacity(2)) }
    }
}

impl StageObserver for Stages<'_> {
    fn enter(&self, stage: Stage) {
        // One a candidate instance: a span each would cost more than the estimate it shows.
        let step = (stage != Stage::Estimate).then(|| step(stage).entered());
        self.open.borrow_mut().push((Stopwatch::start(), step));
    }

    fn leave(&self, stage: Stage) {
        let Some((watch, step)) = self.open.borrow_mut().pop() else { return };
        if let Some(histogram) = self.histograms.of(stage) {
            histogram.record(watch.elapsed_s());
        }
        drop(step);
    }
}

fn step(stage: Stage) -> Span {
    match stage {
        Stage::Eligible => info_span!(span::ELIGIBLE),
        Stage::Predict => info_span!(span::PREDICT),
        Stage::Observe => info_span!(span::OBSERVE),
        Stage::Estimate => info_span!(span::ESTIMATE),
        Stage::Decide => info_span!(span::DECIDE),
        Stage::Affinity => info_span!(span::AFFINITY),
        Stage::Reserve => info_span!(span::RESERVE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_or_refused() {
        let good = trace_parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(good.span_id().to_string(), "00f067aa0ba902b7");
        assert!(good.is_sampled() && good.is_remote());
        for bad in [
            "",
            "00-1-2-3",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert!(trace_parent(bad).is_none(), "{bad}");
        }
    }
}
