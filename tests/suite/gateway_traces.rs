//! What a request leaves in traces and logs: one span, a child a step, nothing of the prompt.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io,
    sync::{Arc, Mutex},
};

use bear::telemetry::{
    TelemetryConfig, build,
    names::{attribute, span},
};

use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};

use crate::{
    fakes::{TestApp, Upstreams, eventually},
    telemetry::{Collector, attributes},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_request_is_one_span_with_a_child_a_step_in_its_callers_trace() {
    let (collector, address) = Collector::start().await;
    let config = TelemetryConfig { otlp_endpoint: Some(address), ..TelemetryConfig::default() };
    let log = Log::default();
    let writer = log.clone();
    let (dispatch, guard) = build(&config, move || writer.clone(), false).unwrap();
    // With a single subscriber in the process, `tracing` asks the thread that reaches a call site first
    // whether it is of interest; other tests' threads have none and would switch it off for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::Registry::default());
    // The test's runtime has one thread, so this covers the app's tasks.
    let subscribed = tracing::dispatcher::set_default(&dispatch);
    let app = TestApp::start().await;
    app.upstreams.next(Upstreams::json(503, r#"{"error":{"message":"you said: a-secret-prompt"}}"#));
    app.upstreams.next(Upstreams::sse(&[
        b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n",
    ]));
    let body = r#"{"model":"auto","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"a-secret-prompt"}]}"#;
    let request = app.post("/v1/chat/completions", body).header("x-request-id", "traced");
    let request = request.header("x-slo-tpot-ms", "50");
    let response = request.header("traceparent", format!("00-{TRACE}-{CALLER}-01")).send().await.unwrap();
    response.text().await.unwrap();
    app.upstreams.otherwise(Upstreams::json(503, "{}"));
    assert_eq!(app.chat(body).await.status(), 502);
    assert_eq!(app.chat(body.replace("auto", "small")).await.status(), 502);
    eventually("all requests are logged", || {
        let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
        log.contains("request 2xx") && log.matches("request 5xx").count() == 2
    })
    .await;
    drop(subscribed);
    guard.shutdown().await;

    let spans = collector.spans();
    let parent = spans
        .iter()
        .find(|s| s.name == "POST /v1/chat/completions" && !s.parent_span_id.is_empty())
        .unwrap_or_else(|| panic!("{:?}", spans.iter().map(|s| &s.name).collect::<Vec<_>>()));
    assert_eq!((hex(&parent.trace_id).as_str(), hex(&parent.parent_span_id).as_str()), (TRACE, CALLER));
    let known = attributes(parent);
    for (name, value) in [
        (attribute::REQUEST_ID, "traced"),
        (attribute::REQUEST_MODEL, "auto"),
        (attribute::RESPONSE_MODEL, "big"),
        (attribute::REASON, "retry"),
        (attribute::HTTP_STATUS, "200"),
        (attribute::HTTP_METHOD, "POST"),
        (attribute::PROVIDER, "openai"),
        (attribute::TPOT_TARGET_MS, "DoubleValue(50.0)"),
        (attribute::ENDING, "complete"),
        (attribute::REQUEST_MAX_TOKENS, "9"),
    ] {
        assert_eq!(known.get(name).map(String::as_str), Some(value), "{name} in {known:?}");
    }
    let children =
        |name: &str| spans.iter().filter(|s| s.name == name && s.parent_span_id == parent.span_id).count();
    for (name, count) in
        [(span::RECEIVE, 1), (span::DESCRIBE, 1), (span::ROUTE, 2), (span::FORWARD, 2), (span::SETTLE, 2)]
    {
        assert_eq!(children(name), count, "{name}");
    }
    let route = spans.iter().find(|s| s.name == span::ROUTE).unwrap();
    let steps = [span::ELIGIBLE, span::PREDICT, span::OBSERVE, span::DECIDE, span::RESERVE];
    for step in steps {
        assert!(spans.iter().any(|s| s.name == step && s.parent_span_id == route.span_id), "{step}");
    }

    let failed = |s: &Span| s.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
    assert!(!failed(parent));
    let other = spans.iter().find(|s| s.name == parent.name && s.parent_span_id.is_empty()).unwrap();
    assert!(failed(other));
    assert_eq!(attributes(other).get(attribute::ERROR_TYPE).map(String::as_str), Some("upstream_failed"));
    let attempts = spans.iter().filter(|s| s.name == span::FORWARD && s.parent_span_id == parent.span_id);
    let mut attempts: Vec<(Option<String>, bool)> =
        attempts.map(|s| (attributes(s).remove(attribute::ATTEMPT), failed(s))).collect();
    attempts.sort();
    assert_eq!(attempts, [(Some("1".into()), true), (Some("2".into()), false)]);

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("request 2xx").count(), 1, "one line a request: {log}");
    assert!(log.contains("tpot_target_ms"), "{log}");
    assert_eq!(log.matches("trying again").count(), 2, "not where no other instance is left: {log}");
    assert!(!log.contains("a-secret-prompt") && !format!("{spans:?}").contains("a-secret-prompt"));
}
