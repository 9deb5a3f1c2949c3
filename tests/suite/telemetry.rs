//! Traces as a collector gets them: an in-process one decodes what the exporter sends over HTTP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use bear::telemetry::{
    TelemetryConfig, build,
    names::{attribute, span},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::any_value::Value,
    trace::v1::Span,
};
use prost::Message;
use tracing::Instrument;

/// Far above the exporter's own limits; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A collector on a port of its own that keeps every span it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector {
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    /// Starts it and returns its address for `telemetry.otlp_endpoint`.
    pub(crate) async fn start() -> (Self, String) {
        let collector = Self::default();
        let app = Router::new().route("/v1/traces", post(Self::take)).with_state(collector.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (collector, address)
    }

    async fn take(State(collector): State<Self>, body: Bytes) -> Result<Vec<u8>, StatusCode> {
        let request = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
        collector.requests.lock().unwrap().push(request);
        Ok(ExportTraceServiceResponse::default().encode_to_vec())
    }

    /// Returns the spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans).cloned().collect()
    }

    /// Returns the service names that sent them.
    fn services(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|r| &r.resource_spans).filter_map(|r| r.resource.as_ref());
        let attributes = resources.flat_map(|r| &r.attributes).filter(|a| a.key == "service.name");
        attributes.filter_map(|a| a.value.clone()?.value).map(|value| format!("{value:?}")).collect()
    }
}

/// Returns a span's attributes by name, whole numbers and texts alike as text.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    let text = |value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs = span.attributes.iter().filter_map(|a| Some((a.key.clone(), text(a.value.clone()?.value?))));
    pairs.collect()
}

/// Emits the spans of one request the way the gateway does: one span and a child a step.
async fn request() {
    let request = tracing::info_span!(
        target: "bear::gateway",
        span::REQUEST,
        { attribute::OTEL_NAME } = "chat auto",
        { attribute::OTEL_KIND } = "server",
        { attribute::OPERATION } = "chat",
        { attribute::REQUEST_MODEL } = "auto",
        { attribute::USAGE_OUTPUT_TOKENS } = tracing::field::Empty,
    );
    async {
        tracing::info_span!(target: "bear::gateway", span::DESCRIBE)
            .in_scope(|| tracing::info!("an event is no span"));
        async { tokio::task::yield_now().await }
            .instrument(tracing::debug_span!(target: "bear::gateway", span::FORWARD))
            .await;
        tracing::Span::current().record(attribute::USAGE_OUTPUT_TOKENS, 17);
    }
    .instrument(request)
    .await;
}

#[tokio::test]
async fn a_collector_gets_one_span_a_request_with_a_child_a_step() {
    let (collector, address) = Collector::start().await;
    let config = TelemetryConfig { otlp_endpoint: Some(address), ..TelemetryConfig::default() };
    let (dispatch, guard) = build(&config, io::sink, false).unwrap();
    let subscribed = tracing::instrument::WithSubscriber::with_subscriber(request(), dispatch.clone());
    subscribed.await;
    guard.shutdown().await;

    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:?}");
    let parent = spans.iter().find(|s| s.name == "chat auto").unwrap();
    assert!(parent.parent_span_id.is_empty());
    let known = attributes(parent);
    assert_eq!(known["gen_ai.operation.name"], "chat");
    assert_eq!(known["gen_ai.request.model"], "auto");
    assert_eq!(known["gen_ai.usage.output_tokens"], "17");
    for name in [span::DESCRIBE, span::FORWARD] {
        let child = spans.iter().find(|s| s.name == name).unwrap();
        assert_eq!(child.parent_span_id, parent.span_id, "{name}");
        assert_eq!(child.trace_id, parent.trace_id, "{name}");
        assert!(child.end_time_unix_nano >= child.start_time_unix_nano, "{name}");
    }
    assert_eq!(collector.services(), ["StringValue(\"bear\")"]);
}

#[tokio::test]
async fn a_collector_that_is_gone_holds_up_neither_requests_nor_the_end() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = TelemetryConfig { otlp_endpoint: Some(address), ..TelemetryConfig::default() };
    let (dispatch, guard) = build(&config, io::sink, false).unwrap();
    let all = async {
        tracing::instrument::WithSubscriber::with_subscriber(request(), dispatch).await;
        guard.shutdown().await;
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "the end waited for a collector that is gone");
}
