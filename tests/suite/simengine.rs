//! The simulated engine over HTTP: what a client of vLLM and a router rely on.

use std::{collections::BTreeMap, time::Duration};

use bear::{
    domain::Snapshot,
    simengine::{self, Handle, Options, SimEngineError},
    truth::Profile,
    wire::{self, sse::SseDecoder},
};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

/// Simulated seconds a real second: fast, and still long enough to meet a request while it runs.
const TIME_SCALE: f64 = 20.0;

struct Engine {
    handle: Handle,
    client: Client,
}

impl Engine {
    async fn start(seed: u64) -> Self {
        Self::start_with(Options { seed, time_scale: TIME_SCALE, ..Options::default() }).await
    }

    async fn start_with(options: Options) -> Self {
        let handle = simengine::spawn(Profile::built_in("qwen3-8b-h100").unwrap(), options).await.unwrap();
        Self { handle, client: Client::builder().no_proxy().build().unwrap() }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.handle.addr())
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.client.post(self.url(path)).header("x-request-id", "abc").json(body).send().await.unwrap()
    }

    async fn chat(&self, body: Value) -> Value {
        let response = self.post("/v1/chat/completions", &with_defaults(body)).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.json().await.unwrap()
    }

    async fn snapshot(&self) -> Snapshot {
        let response = self.client.get(self.url("/bear/snapshot?dp_rank=0")).send().await.unwrap();
        wire::snapshot::decode(&response.bytes().await.unwrap()).unwrap()
    }

    /// Samples of `/metrics` by name and labels other than engine and model.
    async fn metrics(&self) -> BTreeMap<String, f64> {
        let page = self.client.get(self.url("/metrics")).send().await.unwrap().text().await.unwrap();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let name = name.replace("{engine=\"0\",model_name=\"qwen3-8b\"", "{").replace("{,", "{");
                (name.trim_end_matches("{}").to_string(), value.parse().unwrap())
            })
            .collect()
    }

    /// Waits until a snapshot satisfies a condition.
    async fn wait_for(&self, what: &str, condition: impl Fn(&Snapshot) -> bool) -> Snapshot {
        for _ in 0..2_000 {
            let snapshot = self.snapshot().await;
            if condition(&snapshot) {
                return snapshot;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("never saw {what}");
    }
}

fn with_defaults(mut body: Value) -> Value {
    let members = body.as_object_mut().unwrap();
    members.entry("model").or_insert(json!("qwen3-8b"));
    members.entry("messages").or_insert(json!([{"role": "user", "content": "Tell me of the sea."}]));
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

fn words(count: usize) -> String {
    vec!["river"; count].join(" ")
}

/// The data of every event of a streamed body.
async fn events(response: Response) -> Vec<String> {
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let (body, mut events) = (response.bytes().await.unwrap(), Vec::new());
    let mut decoder = SseDecoder::default();
    decoder.push(&body, |event| events.push(event.data.to_string())).unwrap();
    assert!(!decoder.is_mid_event());
    events
}

#[tokio::test]
async fn a_streamed_chat_has_vllms_shape() {
    let engine = Engine::start(1).await;
    let body =
        with_defaults(json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": 5,
        "ignore_eos": true, "unknown_member": {"a": [1]}}));
    let events = events(engine.post("/v1/chat/completions", &body).await).await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(chunks.len(), 1 + 5 + 1);
    assert!(chunks.iter().all(|c| c["id"] == "chatcmpl-abc" && c["object"] == "chat.completion.chunk"));
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let tokens = &chunks[1..6];
    assert!(tokens.iter().all(|c| !c["choices"][0]["delta"]["content"].as_str().unwrap().is_empty()));
    assert!(tokens[..4].iter().all(|c| c["choices"][0]["finish_reason"].is_null()));
    assert_eq!(tokens[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[6]["choices"], json!([]));
    assert_eq!(chunks[6]["usage"]["completion_tokens"], 5);
    assert_eq!(chunks[6]["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[tokio::test]
async fn without_include_usage_no_chunk_has_usage() {
    let engine = Engine::start(1).await;
    let body = with_defaults(json!({"stream": true, "max_tokens": 3}));
    let events = events(engine.post("/v1/chat/completions", &body).await).await;
    assert!(events.iter().all(|data| !data.contains("usage")));
}

#[tokio::test]
async fn the_same_seed_and_order_give_the_same_answers_streamed_or_not() {
    let (one, two, other) = (Engine::start(5).await, Engine::start(5).await, Engine::start(6).await);
    for task in ["question-answering", "instruction-following"] {
        let body = json!({"metadata": {"task": task}});
        let whole = one.chat(body.clone()).await;
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        let mut streamed = with_defaults(body.clone());
        streamed["stream"] = json!(true);
        let mut text = String::new();
        for data in events(two.post("/v1/chat/completions", &streamed).await).await {
            if let Ok(chunk) = serde_json::from_str::<Value>(&data) {
                text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap());
            }
        }
        assert_eq!(content(&whole), text);
        assert_ne!(content(&whole), content(&other.chat(body).await));
    }
}

#[tokio::test]
async fn simulated_times_do_not_depend_on_the_time_scale() {
    let mut sums = Vec::new();
    for time_scale in [20.0, 500.0] {
        let engine = Engine::start_with(Options { seed: 4, time_scale, ..Options::default() }).await;
        engine.chat(json!({"max_tokens": 60, "ignore_eos": true})).await;
        let metrics = engine.metrics().await;
        sums.push(metrics["vllm:inter_token_latency_seconds_sum"]);
    }
    assert_eq!(sums[0], sums[1]);
    // 59 steps of one decoding request at about 6.8 ms.
    assert!((0.37..0.44).contains(&sums[0]), "{}", sums[0]);
}

#[tokio::test]
async fn lengths_follow_the_request() {
    let engine = Engine::start(1).await;
    let completion_tokens = async |body| engine.chat(body).await["usage"]["completion_tokens"].clone();
    assert_eq!(completion_tokens(json!({"max_completion_tokens": 300, "ignore_eos": true})).await, 300);
    assert_eq!(completion_tokens(json!({"max_tokens": 1})).await, 1);
    assert!(completion_tokens(json!({"min_tokens": 2100})).await.as_u64().unwrap() >= 2100);
    let near_full = json!({"model": "qwen3-8b", "prompt": vec![7; 40_950], "ignore_eos": true});
    let answer: Value = engine.post("/v1/completions", &near_full).await.json().await.unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 10);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_stop_text_ends_the_answer() {
    let (one, two) = (Engine::start(5).await, Engine::start(5).await);
    let whole = one.chat(json!({"min_tokens": 50})).await;
    let stop = content(&whole).split(' ').nth(20).unwrap().to_string();
    let cut = two.chat(json!({"min_tokens": 50, "stop": [stop]})).await;
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    assert!(content(&whole).starts_with(content(&cut)) && !content(&cut).contains(&stop));
}

#[tokio::test]
async fn completions_take_every_form_of_prompt() {
    let engine = Engine::start(1).await;
    for (prompt, choices, prompt_tokens) in [
        (json!("a river"), 2, 2),
        (json!(["a river", "a stone house"]), 4, 5),
        (json!([1, 2, 3]), 2, 3),
        (json!([[1, 2, 3], [4]]), 4, 4),
    ] {
        let body = json!({"model": "qwen3-8b", "prompt": prompt, "n": 2, "max_tokens": 2});
        let answer: Value = engine.post("/v1/completions", &body).await.json().await.unwrap();
        assert_eq!(answer["id"], "cmpl-abc");
        assert_eq!(answer["choices"].as_array().unwrap().len(), choices);
        assert_eq!(answer["usage"]["prompt_tokens"], prompt_tokens);
    }
    let body = json!({"model": "qwen3-8b", "prompt": "a", "stream": true, "max_tokens": 2});
    let events = events(engine.post("/v1/completions", &body).await).await;
    let first: Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!((first["object"].clone(), events.len()), (json!("text_completion"), 3));
    assert!(!first["choices"][0]["text"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_blocks() {
    let engine = Engine::start(1).await;
    let idle = engine.snapshot().await.free_kv_blocks;
    for stream in [true, false] {
        let body = with_defaults(json!({"stream": stream, "ignore_eos": true, "max_tokens": 40_000}));
        let request = engine.client.post(engine.url("/v1/chat/completions")).header("x-request-id", "gone");
        let running = tokio::spawn(request.json(&body).send());
        let busy = engine.wait_for("the request running", |s| s.free_kv_blocks < idle).await;
        assert_eq!(busy.running[0].id, "gone");
        assert_eq!(busy.running[0].max_tokens, Some(40_000));
        running.abort();
        if stream {
            // The response may be there already: dropping it closes the connection.
            drop(running.await);
        }
        let after = engine.wait_for("its blocks free again", |s| s.free_kv_blocks == idle).await;
        assert!(after.running.is_empty() && after.waiting.is_empty());
    }
    assert_eq!(engine.metrics().await["vllm:request_success_total{finished_reason=\"abort\"}"], 2.0);
}

#[tokio::test]
async fn answers_of_one_request_have_their_own_ids_in_snapshots() {
    let engine = Engine::start(1).await;
    let body = with_defaults(json!({"n": 2, "ignore_eos": true, "max_tokens": 3_000}));
    let request = engine.client.post(engine.url("/v1/chat/completions")).header("x-request-id", "twins");
    let running = tokio::spawn(request.json(&body).send());
    let snapshot = engine.wait_for("both running", |s| s.running.len() == 2 && s.in_flight.is_some()).await;
    let ids: Vec<&str> = snapshot.running.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["twins", "twins#1"]);
    let in_flight = snapshot.in_flight.unwrap();
    assert!(in_flight.tokens.keys().all(|id| ids.contains(&id.as_str())));
    assert!(in_flight.started_unix_us <= snapshot.captured_unix_us);
    let answer: Value = running.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 6_000);
}

#[tokio::test]
async fn a_repeated_prompt_and_a_second_turn_hit_the_prefix_cache() {
    let engine = Engine::start(1).await;
    let question = json!({"role": "user", "content": words(400)});
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let ask = async |messages: Value| engine.chat(json!({"messages": messages, "max_tokens": 100})).await;

    let first = ask(json!([question])).await;
    let prompt_tokens = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!((cached(&first), prompt_tokens), (0, 408));
    let again = ask(json!([question])).await;
    assert_eq!(cached(&again), prompt_tokens / 16 * 16);

    let answered = json!({"role": "assistant", "content": content(&first)});
    let more = json!({"role": "user", "content": "And then?"});
    let second = ask(json!([question, answered, more])).await;
    let output_tokens = first["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(output_tokens > 32);
    // All that the engine computed of the first turn: its last output token was never an input.
    assert_eq!(cached(&second), (prompt_tokens + output_tokens - 1) / 16 * 16);
    assert_eq!(
        engine.metrics().await["vllm:prefix_cache_hits_total"] as u64,
        cached(&again) + cached(&second)
    );
}

#[tokio::test]
async fn tools_and_images_count_as_prompt() {
    let engine = Engine::start(1).await;
    let plain = json!({"max_tokens": 1, "messages": [{"role": "user", "content": "see"}]});
    let image = json!({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]});
    let mut tools = plain.clone();
    tools["tools"] = json!([{"type": "function", "function": {"name": "find", "parameters": {}}}]);
    let prompt = async |body| engine.chat(body).await["usage"]["prompt_tokens"].as_u64().unwrap();
    let (plain, image, tools) = (prompt(plain).await, prompt(image).await, prompt(tools).await);
    assert_eq!((plain, image), (9, 9 + 256));
    assert!(tools > plain + 20, "{tools}");
}

#[tokio::test]
async fn tokenize_counts_what_the_engine_bills() {
    let engine = Engine::start(1).await;
    let messages =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": words(30)}]);
    let billed = engine.chat(json!({"messages": messages, "max_tokens": 1})).await;
    let counted: Value = engine.post("/tokenize", &json!({"messages": messages})).await.json().await.unwrap();
    assert_eq!(counted["count"], billed["usage"]["prompt_tokens"]);
    assert_eq!(counted["tokens"].as_array().unwrap().len(), counted["count"].as_u64().unwrap() as usize);
    assert_eq!(counted["max_model_len"], 40_960);
    let text: Value = engine
        .post("/tokenize", &json!({"model": "qwen3-8b", "prompt": "a river"}))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(text["count"], 2);
}

#[tokio::test]
async fn errors_have_openais_shape() {
    let engine = Engine::start(1).await;
    let chat = |body: Value| ("/v1/chat/completions", with_defaults(body), StatusCode::BAD_REQUEST);
    let long: Vec<u32> = vec![5; 40_960];
    for ((path, body, status), param) in [
        (("/v1/chat/completions", with_defaults(json!({"model": "gpt"})), StatusCode::NOT_FOUND), "model"),
        (
            ("/v1/completions", json!({"model": "qwen3-8b", "prompt": long}), StatusCode::BAD_REQUEST),
            "input_tokens",
        ),
        (chat(json!({"messages": []})), "messages"),
        (chat(json!({"max_tokens": -3})), "max_tokens"),
        (chat(json!({"max_tokens": 40_960})), "max_tokens"),
        (chat(json!({"n": 0})), "n"),
        (("/tokenize", json!({"model": "gpt", "prompt": "a"}), StatusCode::NOT_FOUND), "model"),
    ] {
        let response = engine.post(path, &body).await;
        assert_eq!(response.status(), status, "{path} {param}");
        let error: Value = response.json().await.unwrap();
        assert_eq!(error["error"]["param"], param);
        assert_eq!(error["error"]["code"], status.as_u16());
        let kind = if status == StatusCode::NOT_FOUND { "NotFoundError" } else { "BadRequestError" };
        assert_eq!(error["error"]["type"], kind);
        assert!(error["error"]["message"].is_string());
    }
    let rank = engine.client.get(engine.url("/bear/snapshot?dp_rank=1")).send().await.unwrap();
    assert_eq!(rank.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn models_and_health_answer() {
    let engine = Engine::start(1).await;
    let models: Value =
        engine.client.get(engine.url("/v1/models")).send().await.unwrap().json().await.unwrap();
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["max_model_len"]),
        (&json!("qwen3-8b"), &json!(40_960))
    );
    let health = engine.client.get(engine.url("/health")).send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
}

#[tokio::test]
async fn metrics_carry_vllms_names_and_add_up() {
    let engine = Engine::start(1).await;
    let answer = engine.chat(json!({"max_tokens": 12, "ignore_eos": true})).await;
    engine.chat(json!({"metadata": {"task": "qa"}})).await;
    let metrics = engine.metrics().await;
    for name in [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total",
        "vllm:num_preemptions_total",
        "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds_bucket{le=\"0.001\"}",
        "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"}",
        "vllm:e2e_request_latency_seconds_sum",
        "vllm:request_queue_time_seconds_count",
    ] {
        assert!(metrics.contains_key(name), "{name} not in {metrics:?}");
    }
    assert_eq!(metrics["vllm:prompt_tokens_total"], 2.0 * answer["usage"]["prompt_tokens"].as_f64().unwrap());
    assert_eq!(metrics["vllm:time_to_first_token_seconds_count"], 2.0);
    assert_eq!(metrics["vllm:request_success_total{finished_reason=\"length\"}"], 1.0);
    assert_eq!(metrics["vllm:request_success_total{finished_reason=\"stop\"}"], 1.0);
    assert!(metrics.keys().any(|name| name.starts_with("vllm:cache_config_info{block_size=\"16\"")));
}

#[tokio::test]
async fn many_requests_at_once_all_end() {
    let engine = Engine::start_with(Options { time_scale: 200.0, ..Options::default() }).await;
    let bodies = (0..300).map(|i| {
        let body =
            with_defaults(json!({"stream": i % 2 == 0, "max_tokens": 20 + i % 40, "ignore_eos": true}));
        engine.client.post(engine.url("/v1/chat/completions")).json(&body).send()
    });
    for response in futures::future::join_all(bodies).await {
        assert!(!response.unwrap().bytes().await.unwrap().is_empty());
    }
    let metrics = engine.metrics().await;
    assert_eq!(metrics["vllm:request_success_total{finished_reason=\"length\"}"], 300.0);
    assert_eq!(engine.snapshot().await.free_kv_blocks, 23_550);
}

#[tokio::test]
async fn a_port_in_use_is_said_plainly() {
    let engine = Engine::start(1).await;
    let options = Options { port: engine.handle.addr().port(), ..Options::default() };
    let error = simengine::spawn(Profile::built_in("qwen3-8b-h100").unwrap(), options).await.err().unwrap();
    assert!(matches!(error, SimEngineError::Bind { .. }));
    let message = error.to_string();
    assert!(message.contains(&engine.handle.addr().to_string()) && message.contains("--port"), "{message}");
}

#[tokio::test]
async fn shutting_down_breaks_streams_off_and_frees_the_port() {
    let engine = Engine::start(1).await;
    let body = with_defaults(json!({"stream": true, "ignore_eos": true, "max_tokens": 40_000}));
    let response = engine.post("/v1/chat/completions", &body).await;
    let addr = engine.handle.addr();
    engine.handle.shutdown().await;
    let text = response.text().await.unwrap();
    let (before, end) = text.rsplit_once("data: {\"error\":").unwrap();
    assert!(
        !before.contains("[DONE]") && end.contains("\"code\":500") && end.ends_with("\n\ndata: [DONE]\n\n")
    );
    drop(engine.client);
    let options = Options { port: addr.port(), ..Options::default() };
    assert!(simengine::spawn(Profile::built_in("qwen3-8b-h100").unwrap(), options).await.is_ok());
}
