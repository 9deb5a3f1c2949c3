//! The gateway over scripted upstreams: what passes, to the byte, and what a client is told.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use bear::gateway::tokenize::TokenizerConfig;
use serde_json::{Value, json};

use crate::fakes::{Options, TestApp, Upstreams, chat};

const ROLE: &[u8] =
    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const WORD: &[u8] = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"h\xC3\xA9\"}}]}\r\n\r\n";
const PING: &[u8] = b": ping\n\n";
const USAGE: &[u8] = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"total_tokens\":14,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\r\n\r\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

fn header<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
}

async fn error_of(response: reqwest::Response) -> Value {
    let body: Value = response.json().await.unwrap();
    assert!(body["error"]["message"].is_string() && body["error"]["type"].is_string(), "{body}");
    body["error"].clone()
}

#[tokio::test]
async fn a_whole_answer_passes_and_only_the_model_changes() {
    let app = TestApp::start().await;
    let body = "{ \"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}] ,\"model\" : \"auto\",\n\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9 日本\"}],\"x_new\":[1.0,1e5,{\"model\":\"auto\"}]}";
    let response = app
        .post("/v1/chat/completions?trace=1", body)
        .header("x-request-id", "mine")
        .header("x-slo-ttft-ms", "60000")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("authorization", "Bearer client")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    for (name, value) in [
        ("x-request-id", "mine"),
        ("x-bear-model", "big"),
        ("x-bear-reason", "max-utility"),
        ("x-bear-predicted-output-tokens", "20"),
        ("x-bear-predicted-accuracy", "0.9000"),
        ("x-upstream", "yes"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(header(&response, name), value, "{name}");
    }
    assert!(header(&response, "x-bear-instance").starts_with("big-"));
    assert!(header(&response, "x-bear-decision-us").parse::<u64>().is_ok());
    assert!(header(&response, "x-bear-predicted-ttft-ms").parse::<f64>().unwrap() > 0.0);
    assert!(header(&response, "x-bear-predicted-cost-usd").parse::<f64>().unwrap() > 0.0);
    assert!(response.text().await.unwrap().contains("\"content\":\"hi\""));

    let received = &app.upstreams.received()[0];
    assert_eq!(received.text(), body.replace("\"model\" : \"auto\"", "\"model\" : \"big\""));
    assert_eq!(received.line, "POST /v1/chat/completions?trace=1 HTTP/1.1");
    assert_eq!(received.header("authorization"), Some("Bearer client"));
    assert!(received.header("traceparent").unwrap().starts_with("00-4bf92f"));
    assert_ne!(received.header("x-request-id"), Some("mine"));

    let row = app.rows().await.remove(0);
    assert_eq!(row.decision.request_id, "mine");
    assert_eq!(row.outcome.attempt_id, received.header("x-request-id").unwrap());
    assert_eq!((row.outcome.prompt_tokens, row.outcome.output_tokens), (Some(5), Some(2)));
    assert_eq!((row.outcome.ending.label(), row.outcome.ttft_s), ("complete", None));
    assert!(row.features.is_some() && row.prompt.is_none() && app.is_idle());
}

#[tokio::test]
async fn a_pinned_model_goes_byte_for_byte() {
    let app = TestApp::start().await;
    let body = chat("small", r#","temperature":0.10"#);
    let response = app.chat(body.clone()).await;
    assert_eq!((header(&response, "x-bear-model"), header(&response, "x-bear-reason")), ("small", "pinned"));
    assert!(header(&response, "x-request-id").len() > 10, "made where absent");
    assert_eq!(app.upstreams.received()[0].text(), body);
}

#[tokio::test]
async fn an_alias_is_rewritten() {
    let mut options = Options::default();
    options.router.aliases =
        [("gpt".to_owned(), "small".to_owned()), ("best".to_owned(), "auto".to_owned())].into();
    let app = TestApp::with(options).await;
    app.chat(chat("gpt", "")).await;
    app.chat(chat("best", "")).await;
    let bodies: Vec<String> = app.upstreams.received().iter().map(|r| r.text().to_owned()).collect();
    assert_eq!(bodies, [chat("small", ""), chat("big", "")]);
}

#[tokio::test]
async fn a_stream_passes_and_the_usage_chunk_is_taken_out() {
    let app = TestApp::start().await;
    app.upstreams.next(Upstreams::sse(&[ROLE, PING, WORD, WORD, USAGE, DONE]));
    let response = app.chat(chat("auto", r#","stream":true"#)).await;
    assert_eq!(header(&response, "content-type"), "text/event-stream; charset=utf-8");
    let got = response.bytes().await.unwrap();
    assert_eq!(got, [ROLE, PING, WORD, WORD, DONE].concat());
    let sent = app.upstreams.received()[0].text().to_owned();
    let injected = r#""stream_options":{"include_usage":true},"#;
    assert_eq!(sent.replacen(injected, "", 1), chat("big", r#","stream":true"#));

    let row = app.rows().await.remove(0);
    let outcome = &row.outcome;
    assert_eq!(
        (outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens),
        (Some(11), Some(4), Some(3))
    );
    assert!(row.query.streamed && outcome.ttft_s.is_some_and(|ttft| ttft > 0.0 && ttft <= outcome.e2e_s));
    assert!(outcome.cost_usd.is_some_and(|cost| cost > 0.0));
}

#[tokio::test]
async fn a_usage_chunk_that_was_asked_for_stays() {
    let app = TestApp::start().await;
    app.upstreams.next(Upstreams::sse(&[ROLE, WORD, USAGE, DONE]));
    let body = chat("small", r#","stream":true,"stream_options":{"include_usage":true,"x":1}"#);
    let response = app.chat(body.clone()).await;
    assert_eq!(response.bytes().await.unwrap(), [ROLE, WORD, USAGE, DONE].concat());
    assert_eq!(app.upstreams.received()[0].text(), body);
}

#[tokio::test]
async fn any_split_of_the_stream_gives_the_same_bytes() {
    let app = TestApp::start().await;
    let whole = [ROLE, PING, WORD, USAGE, DONE].concat();
    let want = [ROLE, PING, WORD, DONE].concat();
    for at in 1..whole.len() {
        app.upstreams.next(Upstreams::sse(&[&whole[..at], &whole[at..]]));
        let response = app.chat(chat("small", r#","stream":true"#)).await;
        assert_eq!(response.bytes().await.unwrap(), want, "split at {at}");
    }
    let bytes: Vec<&[u8]> = whole.chunks(1).collect();
    app.upstreams.next(Upstreams::sse(&bytes));
    let response = app.chat(chat("small", r#","stream":true"#)).await;
    assert_eq!(response.bytes().await.unwrap(), want);
    assert!(app.is_idle());
}

#[tokio::test]
async fn completions_and_other_paths_are_served() {
    let app = TestApp::start().await;
    let body = r#"{"model":"auto","prompt":[[1,2,3]],"max_tokens":4}"#;
    let response = app.post("/v1/completions", body).send().await.unwrap();
    assert_eq!((response.status().as_u16(), header(&response, "x-bear-model")), (200, "big"));
    let body = r#"{"model":"small","input":"a text"}"#;
    let response = app.post("/v1/embeddings", body).send().await.unwrap();
    assert_eq!((response.status().as_u16(), header(&response, "x-bear-model")), (200, "small"));
    let received = app.upstreams.received();
    assert_eq!(received[1].line, "POST /v1/embeddings HTTP/1.1");
    assert_eq!((received[1].text(), received[1].instance), (body, 0));
    assert_eq!(app.rows().await.len(), 2);
}

#[tokio::test]
async fn other_paths_need_a_concrete_model() {
    let app = TestApp::start().await;
    let response = app.post("/v1/embeddings", r#"{"model":"auto","input":"a text"}"#).send().await.unwrap();
    assert_eq!(response.status(), 400);
    let error = error_of(response).await;
    assert_eq!((&error["param"], &error["code"]), (&json!("model"), &json!("concrete_model_needed")));
    assert!(app.upstreams.received().is_empty());
}

#[tokio::test]
async fn lengths_are_learned_from_answers_that_tell_them() {
    let app = TestApp::start().await;
    let small = app.pool.model_index("small").unwrap();
    let expected_tokens = || app.pool.expected_output_tokens(small, 5);
    let prior_tokens = expected_tokens();
    app.upstreams.otherwise(Upstreams::json(
        200,
        r#"{"data":[],"usage":{"prompt_tokens":5,"total_tokens":5,"completion_tokens":0}}"#,
    ));
    for _ in 0..30 {
        app.post("/v1/embeddings", r#"{"model":"small","input":"a text"}"#).send().await.unwrap();
    }
    for usage in ["{}", r#"{"prompt_tokens":5}"#] {
        app.upstreams.otherwise(Upstreams::json(200, &format!(r#"{{"choices":[],"usage":{usage}}}"#)));
        for _ in 0..30 {
            app.chat(chat("small", "")).await;
        }
    }
    assert_eq!(expected_tokens(), prior_tokens, "nothing was told of lengths");
    let told = r#"{"choices":[],"usage":{"input_tokens":5,"output_tokens":300}}"#;
    app.upstreams.otherwise(Upstreams::json(200, told));
    for _ in 0..30 {
        app.chat(chat("small", "")).await;
    }
    assert_eq!(expected_tokens(), 300.0);
    let rows = app.rows().await;
    let of =
        |i: usize| (rows[i].outcome.prompt_tokens, rows[i].outcome.output_tokens, rows[i].outcome.cost_usd);
    assert!(matches!(of(0), (Some(5), Some(0), Some(_))), "an embedding has a cost: {:?}", of(0));
    assert_eq!((of(40), of(70)), ((None, None, None), (None, None, None)));
}

#[tokio::test]
async fn images_go_to_a_model_that_takes_them() {
    let app = TestApp::start().await;
    let image = |model: &str| {
        json!({"model": model, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]})
        .to_string()
    };
    let response = app.chat(image("auto")).await;
    assert_eq!(header(&response, "x-bear-model"), "big");
    let response = app.chat(image("small")).await;
    assert_eq!(response.status(), 400);
    assert_eq!(header(&response, "x-bear-dropped-reason"), "no_eligible_model");
    let message = error_of(response).await["message"].to_string();
    assert!(message.contains("small: takes no image input"), "{message}");
    assert_eq!(app.upstreams.received().len(), 1);
}

#[tokio::test]
async fn bounds_that_no_model_keeps_show_each_models_numbers() {
    let app = TestApp::start().await;
    let response = app
        .post("/v1/chat/completions", chat("auto", ""))
        .header("x-bear-min-accuracy", "0.95")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 400);
    let message = error_of(response).await["message"].to_string();
    assert!(
        message.contains("small: predicted accuracy 0.500")
            && message.contains("big: predicted accuracy 0.900"),
        "{message}"
    );
}

#[tokio::test]
async fn bad_headers_are_named() {
    let app = TestApp::start().await;
    for (name, value) in [
        ("x-slo-ttft-ms", "soon"),
        ("x-slo-ttft-ms", "0"),
        ("x-llm-d-slo-ttft-ms", "-5"),
        ("x-bear-ttft-ms", "inf"),
        ("x-slo-tpot-ms", "NaN"),
        ("x-bear-min-accuracy", "1.5"),
        ("x-bear-max-cost-usd", "-1"),
        ("x-bear-lambda", "10"),
        ("x-bear-delta", "x"),
        ("x-request-id", ""),
    ] {
        let response =
            app.post("/v1/chat/completions", chat("auto", "")).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), 400, "{name}: {value}");
        assert!(header(&response, "x-request-id").starts_with("req-"), "{name}: a refusal has a good id");
        let error = error_of(response).await;
        assert_eq!((&error["param"], &error["code"]), (&json!(name), &json!("invalid_header")));
    }
    assert!(app.upstreams.received().is_empty());
}

#[tokio::test]
async fn a_request_sets_its_tradeoff_where_it_may() {
    let mut options = Options::default();
    options.router.allow_request_tradeoff = true;
    let app = TestApp::with(options).await;
    let response = app
        .post("/v1/route", chat("auto", ""))
        .header("x-bear-lambda", "7")
        .header("x-bear-delta", "0.5")
        .send()
        .await
        .unwrap();
    let decision: Value = response.json().await.unwrap();
    assert_eq!((&decision["lambda_per_usd"], &decision["delta_per_s"]), (&json!(7.0), &json!(0.5)));
}

#[tokio::test]
async fn bad_bodies_unknown_models_and_paths_are_openais_errors() {
    let app = TestApp::start().await;
    for (body, param) in [
        ("{".to_owned(), Value::Null),
        (r#"{"messages":[{"role":"user","content":"x"}]}"#.to_owned(), json!("model")),
        (r#"{"model":"auto","messages":[]}"#.to_owned(), json!("messages")),
        (chat("auto", r#","stream_options":3"#), json!("stream_options")),
    ] {
        let response = app.chat(body).await;
        assert_eq!(response.status(), 400);
        assert_eq!(error_of(response).await["param"], param);
    }
    let response = app.chat(chat("gpt-9", "")).await;
    assert_eq!(response.status(), 404);
    let error = error_of(response).await;
    assert_eq!(error["code"], "model_not_found");
    let message = error["message"].as_str().unwrap();
    assert!(["auto", "small", "big"].iter().all(|known| message.contains(known)), "{message}");
    for (path, status) in
        [("/v1/chat/completions", 405), ("/v1/route", 405), ("/nowhere", 404), ("/v1/models/none", 404)]
    {
        let response = app.get(path).await;
        assert_eq!(response.status(), status, "{path}");
        error_of(response).await;
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_413() {
    let mut options = Options::default();
    options.gateway.listen.max_body_mib = 1;
    let app = TestApp::with(options).await;
    let body = chat("auto", &format!(r#","x":"{}""#, "y".repeat(1 << 20)));
    let chunked = reqwest::Body::wrap_stream(futures::stream::iter([Ok::<_, std::io::Error>(body.clone())]));
    for body in [reqwest::Body::from(body), chunked] {
        let response = app.client.post(app.url("/v1/chat/completions")).body(body).send().await.unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(error_of(response).await["code"], "body_too_large");
    }
}

#[tokio::test]
async fn models_health_readiness_and_metrics() {
    let app = TestApp::start().await;
    let list: Value = app.get("/v1/models").await.json().await.unwrap();
    let cards: Vec<(&str, u64)> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| (card["id"].as_str().unwrap(), card["max_model_len"].as_u64().unwrap()))
        .collect();
    assert_eq!(cards, [("auto", 4096), ("small", 4096), ("big", 4096)]);
    assert_eq!(app.get("/v1/models/big").await.status(), 200);
    assert_eq!(app.get("/health").await.status(), 200);
    assert_eq!(app.get("/ready").await.status(), 200);
    app.chat(chat("auto", "")).await;
    let page = app.get("/metrics").await.text().await.unwrap();
    for line in [
        "bear_ledger_requests{instance=\"small-0\"} 0",
        "bear_requests_total{",
        "bear_decision_seconds_bucket{stage=\"decide\"",
    ] {
        assert!(page.contains(line), "{line} is missing in\n{page}");
    }
    (0..3).for_each(|i| app.pool.set_draining(i, true));
    assert_eq!(app.get("/ready").await.status(), 503);
    let response = app.chat(chat("auto", "")).await;
    assert_eq!(
        (response.status().as_u16(), header(&response, "x-bear-dropped-reason")),
        (503, "no_usable_instance")
    );
}

#[tokio::test]
async fn a_dry_run_shows_every_instance_and_changes_nothing() {
    let app = TestApp::start().await;
    let ask = async |body: String| {
        let response = app
            .post("/v1/route", body)
            .header("x-slo-ttft-ms", "500")
            .header("x-request-id", "dry")
            .send()
            .await
            .unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "x-request-id")), (200, "dry"));
        response.json::<Value>().await.unwrap()
    };
    let decision = ask(chat("auto", "")).await;
    assert_eq!(decision["ttft_target_ms"], 500.0);
    let rows = decision["candidates"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(
        rows.iter().all(|row| row["ttft_s"].is_number() && row["count_source"] == "bytes"),
        "{decision:#}"
    );
    assert_eq!(rows.iter().filter(|row| row["chosen"] == true).count(), 1);
    let completion = ask(r#"{"model":"small","prompt":"x"}"#.into()).await;
    assert_eq!(completion["reason"], "pinned");
    assert!(app.is_idle() && app.upstreams.received().is_empty() && app.rows().await.is_empty());
}

#[tokio::test]
async fn prompts_are_counted_by_files_else_by_the_engine_else_by_bytes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokenizer");
    let counted = async |tokenizer: TokenizerConfig, engine: Option<u32>| {
        let app = TestApp::with(Options { tokenizer, ..Options::default() }).await;
        if let Some(count) = engine {
            app.upstreams.count_tokens(count);
        }
        let dry_run = async || {
            let response = app.post("/v1/route", chat("big", "")).send().await.unwrap();
            response.json::<Value>().await.unwrap()["candidates"][1].clone()
        };
        // A dry run leaves no trace, a request that is sent does.
        dry_run().await;
        let dry = app.upstreams.tokenized();
        app.chat(chat("big", "")).await;
        let seen = dry_run().await;
        (
            seen["count_source"].as_str().unwrap().to_owned(),
            seen["prompt_tokens"].as_u64().unwrap(),
            (dry, app.upstreams.tokenized()),
        )
    };
    let files = TokenizerConfig { files: Some(folder), engine: true };
    let engine = TokenizerConfig { files: None, engine: true };
    assert_eq!(counted(files, Some(99)).await, ("tokenizer".into(), 17, (0, 0)));
    assert_eq!(
        counted(engine.clone(), Some(99)).await,
        ("engine".into(), 99, (1, 2)),
        "asked once, then remembered"
    );
    assert_eq!(counted(engine, None).await, ("bytes".into(), 7, (1, 2)), "left alone after a failure");
}

#[tokio::test]
async fn prompts_are_kept_only_where_the_operator_asks() {
    let app = TestApp::with(Options { keep_prompts: true, ..Options::default() }).await;
    app.chat(chat("auto", "")).await;
    assert_eq!(app.rows().await[0].prompt.as_deref(), Some("hello"));
}
