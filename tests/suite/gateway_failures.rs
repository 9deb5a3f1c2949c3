//! The gateway when things break: upstreams that fail, stall or hang up, and clients that leave.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bear::{domain::Now, telemetry::clock::LiveClock};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::fakes::{Options, Step, TestApp, Upstreams, chat, chunk, eventually};

const WORD: &[u8] = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const REFUSED: &[u8] = b"data: {\"error\":{\"message\":\"no\",\"code\":400}}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

/// Requires a stream that ends in one error event of that code, and no end marker.
fn assert_broken(text: &str, code: &str) {
    assert!(!text.contains("[DONE]"), "{text}");
    let (_, event) =
        text.rsplit_once("event: error\ndata: ").unwrap_or_else(|| panic!("no error event: {text}"));
    let error: Value = serde_json::from_str(event.trim()).unwrap();
    assert_eq!(error["error"]["code"], code);
}

#[tokio::test]
async fn a_failed_attempt_is_repeated_elsewhere_before_the_first_byte() {
    let app = TestApp::start().await;
    let failures: [Vec<Step>; 8] = [
        // First, while no connection is a reused one.
        vec![Step::HangUp],
        Upstreams::json(503, "{}"),
        Upstreams::json(429, "{}"),
        vec![Upstreams::sse_head(), Step::HangUp],
        Upstreams::sse(&[b"data: {\"error\":{\"message\":\"no memory\"}}\n\n"]),
        Upstreams::sse(&[b"data: {\"error\":{\"message\":\"no memory\",\"code\":500}}\n\n", DONE]),
        Upstreams::sse(&[]),
        Upstreams::sse(&[b": ping\n\n"]),
    ];
    for (round, failure) in failures.into_iter().enumerate() {
        app.upstreams.next(failure).next(Upstreams::sse(&[WORD, DONE]));
        let response = app.chat(chat("big", r#","stream":true"#)).await;
        assert_eq!(response.status(), 200, "round {round}");
        assert_eq!(response.headers()["x-bear-reason"], "retry");
        assert_eq!(response.text().await.unwrap().into_bytes(), [WORD, DONE].concat());
        let received = app.upstreams.received();
        let [first, second] = &received[round * 2..] else { panic!("two attempts, got {received:?}") };
        assert_ne!(first.instance, second.instance, "round {round}");
        assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    }
    let endings: Vec<_> = app.rows().await.iter().map(|row| row.outcome.ending.label()).collect();
    assert_eq!(endings, ["failed", "complete"].repeat(8));
    assert!(app.is_idle());
}

#[tokio::test]
async fn a_refused_connection_is_a_retry_and_then_a_502() {
    let upstreams = Upstreams::start(3).await;
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let urls = vec![closed.clone(), closed.clone(), upstreams.urls[2].clone()];
    let app = TestApp::over(Options::default(), upstreams, urls).await;
    for _ in 0..8 {
        assert_eq!(app.chat(chat("big", "")).await.status(), 200);
    }
    let response = app.chat(chat("small", "")).await;
    assert_eq!(response.status(), 502);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["code"], "upstream_unreachable");
    assert!(error["error"]["message"].as_str().unwrap().contains("small-0"));
    assert!(app.is_idle());
}

#[tokio::test]
async fn a_4xx_is_passed_on_and_never_repeated() {
    let app = TestApp::start().await;
    let own =
        r#"{"error":{"message":"too long","type":"BadRequestError","param":"input_tokens","code":400}}"#;
    app.upstreams.next(Upstreams::json(400, own));
    let response = app.chat(chat("big", "")).await;
    assert_eq!(response.status(), 400);
    assert_eq!(response.headers()["x-bear-dropped-reason"], "upstream_refused");
    assert_eq!(response.text().await.unwrap(), own);
    assert_eq!(app.upstreams.received().len(), 1);
}

#[tokio::test]
async fn failures_everywhere_end_in_one_error() {
    let app = TestApp::start().await;
    app.upstreams.otherwise(Upstreams::json(500, r#"{"message":"dead"}"#));
    let response = app.chat(chat("big", "")).await;
    assert_eq!(response.status(), 502);
    let error: Value = response.json().await.unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("dead"));
    assert_eq!(app.upstreams.received().len(), 2, "one retry");
    assert_eq!(app.rows().await.len(), 2);
    assert!(app.is_idle());
}

#[tokio::test]
async fn no_retry_follows_a_missed_target() {
    let app = TestApp::start().await;
    app.upstreams.next(Upstreams::json(503, "{}"));
    let tiny = app.post("/v1/chat/completions", chat("big", "")).header("x-slo-ttft-ms", "0.000001");
    assert_eq!(tiny.send().await.unwrap().status(), 502);
    assert_eq!(app.upstreams.received().len(), 1);
}

#[tokio::test]
async fn a_reused_connection_closed_before_any_byte_is_no_failure() {
    let app = TestApp::with(options(|options| options.gateway.upstream.retries = 0)).await;
    assert_eq!(app.chat(chat("small", "")).await.status(), 200);
    app.upstreams.next(vec![Step::HangUp]);
    let response = app.chat(chat("small", "")).await;
    assert_eq!(response.status(), 200, "the only instance of the model answered the second attempt");
    let received = app.upstreams.received();
    assert_eq!(received.len(), 3);
    assert_ne!(received[1].header("x-request-id"), received[2].header("x-request-id"));

    app.upstreams.next(vec![Step::HangUp]).next(vec![Step::HangUp]);
    assert_eq!(app.chat(chat("small", "")).await.status(), 502, "only once");

    assert_eq!(app.chat(chat("small", "")).await.status(), 200);
    app.upstreams.next(vec![Step::Pause(Duration::from_millis(1200)), Step::HangUp]);
    assert_eq!(app.chat(chat("small", "")).await.status(), 502, "it was at work on the request by then");
    assert!(app.is_idle());
}

#[tokio::test]
async fn a_break_in_the_middle_is_an_error_event_and_no_retry() {
    let app = TestApp::start().await;
    let fragment = chunk(b"data: {\"fragment");
    app.upstreams.next(vec![Upstreams::sse_head(), chunk(WORD), fragment, Step::HangUp]);
    let response = app.chat(chat("big", r#","stream":true"#)).await;
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    assert!(text.starts_with(std::str::from_utf8(WORD).unwrap()) && !text.contains("fragment"), "{text}");
    assert_broken(&text, "upstream_broke_off");

    let until_close =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec();
    app.upstreams.next(vec![Step::Send(until_close), Step::Send(WORD.to_vec()), Step::HangUp]);
    let response = app.chat(chat("big", r#","stream":true"#)).await;
    assert_broken(&response.text().await.unwrap(), "upstream_broke_off");

    assert_eq!(app.upstreams.received().len(), 2);
    let endings: Vec<_> = app.rows().await.iter().map(|row| row.outcome.ending.label()).collect();
    assert_eq!(endings, ["failed", "failed"]);
    assert!(app.is_idle());
}

#[tokio::test]
async fn a_whole_answer_cut_short_breaks_the_clients_connection() {
    let app = TestApp::start().await;
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"a\":".to_vec();
    app.upstreams.next(vec![Step::Send(head), Step::HangUp]);
    let response = app.chat(chat("big", "")).await;
    assert!(response.bytes().await.is_err(), "a short answer must not look whole");
    eventually("the ledger is empty", || app.is_idle()).await;
}

#[tokio::test]
async fn silence_before_the_first_event_is_a_504() {
    for stalled in [vec![Step::Silence], vec![Upstreams::sse_head(), Step::Silence]] {
        let app = TestApp::with(options(|options| {
            options.gateway.upstream.first_byte_timeout_s = 1.0;
            options.gateway.upstream.retries = 0;
        }))
        .await;
        app.upstreams.next(stalled);
        let response = app.chat(chat("big", r#","stream":true"#)).await;
        assert_eq!(response.status(), 504);
        let error: Value = response.json().await.unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains("first-byte"), "{error}");
        eventually("the upstream sees the hang-up", || app.upstreams.hang_ups() == 1).await;
        assert_eq!(app.rows().await[0].outcome.ending.label(), "timed-out");
        assert!(app.is_idle());
    }
}

#[tokio::test]
async fn a_first_byte_time_out_is_repeated_but_a_total_one_is_not() {
    // Long enough for the second attempt's answer on a busy machine.
    let app = TestApp::with(options(|options| options.gateway.upstream.first_byte_timeout_s = 2.0)).await;
    let streamed = chat("big", r#","stream":true"#);
    app.upstreams.next(vec![Step::Silence]).next(Upstreams::sse(&[WORD, DONE]));
    assert_eq!(app.chat(streamed.clone()).await.status(), 200);
    assert_eq!(app.upstreams.received().len(), 2);
    let app = TestApp::with(options(|options| options.gateway.upstream.total_timeout_s = 1.0)).await;
    app.upstreams.next(vec![Step::Silence]);
    let response = app.chat(streamed).await;
    assert_eq!(response.status(), 504);
    assert!(response.text().await.unwrap().contains("total"));
    assert_eq!(app.upstreams.received().len(), 1);
}

#[tokio::test]
async fn silence_in_the_middle_ends_the_stream_with_an_error() {
    for (idle_s, total_s, why) in [(0.5, 600.0, "idle time-out"), (60.0, 2.0, "total time-out")] {
        let app = TestApp::with(options(|options| {
            options.gateway.upstream.idle_timeout_s = idle_s;
            options.gateway.upstream.total_timeout_s = total_s;
        }))
        .await;
        app.upstreams.next(vec![Upstreams::sse_head(), chunk(WORD), Step::Silence]);
        let text = app.chat(chat("big", r#","stream":true"#)).await.text().await.unwrap();
        assert!(text.contains(why), "{text}");
        assert_broken(&text, "upstream_timeout");
        eventually("the upstream sees the hang-up", || app.upstreams.hang_ups() == 1).await;
        assert_eq!(app.rows().await[0].outcome.ending.label(), "timed-out");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_has_no_first_byte_to_wait_for() {
    let app = TestApp::with(options(|options| {
        options.gateway.upstream.first_byte_timeout_s = 0.2;
        options.gateway.upstream.retries = 0;
    }))
    .await;
    let mut late = vec![Step::Pause(Duration::from_secs(1))];
    late.extend(Upstreams::json(200, "{}"));
    app.upstreams.next(late);
    assert_eq!(app.chat(chat("big", "")).await.status(), 200);
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off_when_its_time_is_up() {
    let app = TestApp::with(options(|options| options.gateway.upstream.total_timeout_s = 2.0)).await;
    let mut piece = b"10000\r\ndata: ".to_vec();
    piece.resize(7 + 0x10000 - 2, b'x');
    piece.extend_from_slice(b"\n\n\r\n");
    for stream in ["true", "false"] {
        app.upstreams.next(vec![Upstreams::sse_head(), Step::Flood(piece.clone())]);
        let before = app.upstreams.hang_ups();
        let connection = ask_until(&app, &chat("big", &format!(r#","stream":{stream}"#)), None).await;
        eventually("the upstream is let go", || app.upstreams.hang_ups() == before + 1).await;
        eventually("the ledger is empty", || app.is_idle()).await;
        drop(connection);
    }
    let endings: Vec<_> = app.rows().await.iter().map(|row| row.outcome.ending.label()).collect();
    assert_eq!(endings, ["timed-out", "timed-out"]);
}

#[tokio::test]
async fn a_request_that_does_not_arrive_is_a_408() {
    for (idle_s, total_s, limit) in [(0.3, 600.0, "idle"), (600.0, 0.3, "total")] {
        let app = TestApp::with(options(|options| {
            options.gateway.upstream.idle_timeout_s = idle_s;
            options.gateway.upstream.total_timeout_s = total_s;
        }))
        .await;
        let mut connection = TcpStream::connect(app.address).await.unwrap();
        let part =
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bear\r\ncontent-length: 99\r\n\r\n{\"model\":";
        connection.write_all(part.as_bytes()).await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"}}") {
            assert!(connection.read_buf(&mut got).await.unwrap() > 0);
        }
        let got = String::from_utf8(got).unwrap();
        assert!(got.starts_with("HTTP/1.1 408 "), "{got}");
        assert!(got.contains(r#""code":"body_timeout""#) && got.contains(limit), "{got}");
    }
}

#[tokio::test]
async fn a_first_event_that_is_a_4xx_is_that_refusal() {
    let app = TestApp::start().await;
    let own = r#"{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}"#;
    app.upstreams.next(Upstreams::sse(&[format!("data: {own}\n\n").as_bytes(), DONE]));
    let response = app.chat(chat("big", r#","stream":true"#)).await;
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (400, own));
    assert_eq!(app.upstreams.received().len(), 1, "no other instance would take it");
}

#[tokio::test]
async fn the_breaker_counts_the_instances_own_faults_only() {
    let event = |rest: &str| {
        Upstreams::sse(&[format!("data: {{\"error\":{{\"message\":\"no\"{rest}}}}}\n\n").as_bytes(), DONE])
    };
    let word_then = |step: Step| vec![Upstreams::sse_head(), chunk(WORD), step];
    for (what, script, opens) in [
        ("400", Upstreams::json(400, "{}"), false),
        ("429", Upstreams::json(429, "{}"), false),
        ("an event with code 400", event(r#","code":400"#), false),
        ("an event without a code", event(""), false),
        ("500", Upstreams::json(500, "{}"), true),
        ("an event with code 500", event(r#","code":500"#), true),
        ("an empty stream", Upstreams::sse(&[]), true),
        ("a break in the middle", word_then(Step::HangUp), true),
        ("silence in the middle", word_then(Step::Silence), true),
        ("an error in the middle", Upstreams::sse(&[WORD, REFUSED]), false),
    ] {
        let app = TestApp::with(options(|options| {
            options.pool.breaker_failures = 2;
            options.pool.breaker_cooldown_ms = 600_000;
            options.gateway.upstream.retries = 0;
            options.gateway.upstream.idle_timeout_s = 0.5;
        }))
        .await;
        let usable = || app.pool.usable(0, LiveClock::new().now()).is_ok();
        for _ in 0..2 {
            assert!(usable(), "{what}");
            app.upstreams.next(script.clone());
            app.chat(chat("small", r#","stream":true"#)).await.text().await.unwrap();
        }
        assert_eq!(usable(), !opens, "{what}");
    }
}

#[tokio::test]
async fn a_total_time_out_does_not_count_against_the_instance() {
    for script in [vec![Step::Silence], vec![Upstreams::sse_head(), chunk(WORD), Step::Silence]] {
        let app = TestApp::with(options(|options| {
            options.pool.breaker_failures = 1;
            options.pool.breaker_cooldown_ms = 600_000;
            options.gateway.upstream.total_timeout_s = 1.0;
        }))
        .await;
        app.upstreams.next(script);
        app.chat(chat("small", r#","stream":true"#)).await.text().await.unwrap();
        assert_eq!(app.upstreams.received().len(), 1);
        assert!(app.pool.usable(0, LiveClock::new().now()).is_ok());
    }
}

#[tokio::test]
async fn a_stream_of_another_path_needs_no_marker() {
    let app = TestApp::start().await;
    let until_close = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let event = b"event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n";
    app.upstreams.next(vec![Step::Send(until_close.to_vec()), Step::Send(event.to_vec()), Step::HangUp]);
    let body = r#"{"model":"small","input":"a text","stream":true}"#;
    let response = app.post("/v1/responses", body).send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap().as_ref(), event);
    assert_eq!(app.rows().await[0].outcome.ending.label(), "complete");
}

#[tokio::test]
async fn a_first_event_too_large_to_follow_passes_at_once() {
    let app = TestApp::start().await;
    let huge = [b"data: ".as_slice(), &vec![b'x'; 9 << 20]].concat();
    app.upstreams.next(vec![Upstreams::sse_head(), chunk(&huge), Step::Silence]);
    let mut response = app.chat(chat("small", r#","stream":true"#)).await;
    assert!(response.chunk().await.unwrap().unwrap().starts_with(b"data: xxx"));
}

/// Sends a request on a connection of its own; reads until `until` appears; leaves.
async fn leave_after(app: &TestApp, body: &str, until: Option<&[u8]>) {
    drop(ask_until(app, body, until).await);
}

/// Sends a request on a connection of its own and reads until `until` appears.
async fn ask_until(app: &TestApp, body: &str, until: Option<&[u8]>) -> TcpStream {
    let mut connection = TcpStream::connect(app.address).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bear\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(body.as_bytes()).await.unwrap();
    let mut got = Vec::new();
    while let Some(until) = until
        && !got.windows(until.len()).any(|window| window == until)
    {
        assert!(connection.read_buf(&mut got).await.unwrap() > 0, "{}", String::from_utf8_lossy(&got));
    }
    connection
}

#[tokio::test]
async fn clients_that_leave_cancel_upstream_and_leave_no_trace_in_the_ledgers() {
    let app = TestApp::start().await;
    app.upstreams.otherwise(vec![Step::Silence]);
    let body = chat("auto", r#","stream":true"#);
    for sent in 0..100 {
        let before = app.upstreams.received().len();
        let connection = ask_until(&app, &body, None).await;
        // Half of them leave at once, half when the upstream has the request.
        if sent % 2 == 0 {
            eventually("the upstream has it", || app.upstreams.received().len() > before).await;
        }
        drop(connection);
        eventually("idle after a leave", || app.is_idle()).await;
    }
    let all_left = || app.upstreams.hang_ups() == app.upstreams.received().len();
    eventually("upstreams saw the early leaves", all_left).await;

    app.upstreams.otherwise(vec![Upstreams::sse_head(), chunk(WORD), Step::Silence]);
    let leaves = (0..100).map(|_| leave_after(&app, &body, Some(b"data: ")));
    futures::future::join_all(leaves).await;
    eventually("idle after mid-stream leaves", || app.is_idle()).await;
    eventually("upstreams saw the late leaves", all_left).await;
    eventually("idle at the end", || app.is_idle()).await;

    let rows = app.rows().await;
    assert!(rows.iter().all(|row| row.outcome.ending.label() == "cancelled"));
    assert!(rows.iter().filter(|row| row.outcome.ttft_s.is_some()).count() >= 100);
    let ids: std::collections::HashSet<_> = rows.iter().map(|row| &row.outcome.attempt_id).collect();
    assert_eq!(ids.len(), rows.len(), "each attempt settled once");
    let received = app.upstreams.received();
    assert!(received.iter().all(|r| ids.iter().any(|id| r.header("x-request-id") == Some(id))));
}

#[tokio::test]
async fn a_client_that_hangs_up_at_the_marker_has_a_complete_answer() {
    let app = TestApp::start().await;
    app.upstreams.next(vec![Upstreams::sse_head(), chunk(WORD), chunk(DONE), Step::Silence]);
    leave_after(&app, &chat("auto", r#","stream":true"#), Some(b"[DONE]")).await;
    eventually("the ledger is empty", || app.is_idle()).await;
    assert_eq!(app.rows().await[0].outcome.ending.label(), "complete");
}

#[tokio::test]
async fn a_slow_client_holds_nobody_up() {
    let app = TestApp::start().await;
    let big = vec![b'x'; 4 << 20];
    let event = [b"data: ".as_slice(), &big, b"\n\n"].concat();
    app.upstreams.next(vec![Upstreams::sse_head(), chunk(&event), chunk(&event), Step::Silence]);
    let slow = app.chat(chat("auto", r#","stream":true"#)).await;
    for _ in 0..20 {
        let answer = tokio::time::timeout(Duration::from_secs(20), app.chat(chat("auto", ""))).await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    drop(slow);
    eventually("the ledger is empty", || app.is_idle()).await;
}
