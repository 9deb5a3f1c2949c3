//! `bear serve` as an operator meets it: starts from a file, says where it listens, answers, ends on a
//! signal with every decision written, and refuses what it cannot do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use axum::{Json, Router, routing::post};
use serde_json::{Value, json};

/// Answers every chat request with one fixed completion; returns its address.
async fn upstream() -> String {
    let answer = || async {
        Json(json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "small",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Canberra."}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        }))
    };
    let app = Router::new().route("/v1/chat/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Writes a configuration with one instance and returns the command that serves it.
fn command(folder: &Path, upstream: &str, listen: &str) -> Command {
    let text = format!(
        "models:\n- id: small\n  parameters_b: 0.6\n  max_model_len: 4096\n  \
         price: {{input_usd_per_mtok: 0.05, output_usd_per_mtok: 0.2}}\n  \
         prior: {{accuracy: 0.5, output_tokens: 100}}\ninstances:\n- {{id: small-0, model: small, url: \"{upstream}\"}}\n\
         listen: {{admin: null}}\ntelemetry: {{log_format: json}}\n"
    );
    std::fs::write(folder.join("bear.yaml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bear"));
    command.current_dir(folder).args(["serve", "bear.yaml", "--listen", listen]).env_remove("BEAR_CONFIG");
    command.env_remove("BEAR__STORE__URL").stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A started router, killed when a test ends early.
struct Served {
    child: Child,
    address: String,
    log: BufReader<std::process::ChildStderr>,
}

impl Served {
    fn start(folder: &Path, upstream: &str) -> Self {
        let mut child = command(folder, upstream, "127.0.0.1:0").spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "ended without listening:\n{said}");
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"] == "listening" {
                break format!("http://{}", event["address"].as_str().unwrap());
            }
            said.push_str(&line);
        };
        Self { child, address, log }
    }

    /// Reads the log up to a line that contains `part`.
    fn await_line(&mut self, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "ended without `{part}`");
        }
    }

    /// Sends SIGTERM and returns the exit code with the rest of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let sent = signal(&self.child, "TERM");
        assert!(sent, "no signal could be sent");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.log, &mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

/// Sends a signal by the shell's own `kill`, which needs no package; returns whether it could.
fn signal(child: &Child, name: &str) -> bool {
    let id = child.id().to_string();
    let script = format!("kill -{name} \"$0\"");
    Command::new("sh").args(["-c", &script, &id]).status().unwrap().success()
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has usually ended by itself.
        let _gone = self.child.kill();
    }
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_starts_answers_ends_and_can_explain_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let mut served = Served::start(folder.path(), &upstream);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let health = client.get(format!("{}/health", served.address)).send().await.unwrap();
    assert_eq!(health.status(), 200);
    let body =
        json!({"model": "auto", "messages": [{"role": "user", "content": "The capital of Australia?"}]});
    let answer = client
        .post(format!("{}/v1/chat/completions", served.address))
        .header("x-request-id", "from-the-test")
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-bear-model"], "small");
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "Canberra.");
    let metrics =
        client.get(format!("{}/metrics", served.address)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("bear_requests_total{"), "{metrics}");

    assert!(signal(&served.child, "HUP"), "no signal could be sent");
    served.await_line("SIGHUP");
    let health = client.get(format!("{}/health", served.address)).send().await.unwrap();
    assert_eq!(health.status(), 200, "a hang-up is survived");
    let (code, log) = served.end();
    assert_eq!(code, Some(0), "{log}");
    let explained = Command::new(env!("CARGO_BIN_EXE_bear"))
        .current_dir(folder.path())
        .env_remove("BEAR__STORE__URL")
        .args(["explain", "from-the-test"])
        .output()
        .unwrap();
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(text.contains("small-0") && text.contains("complete"), "{text}\n{log}");
}

#[test]
fn a_port_in_use_is_said_plainly() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = refused(&command(folder.path(), "http://127.0.0.1:9", &address).output().unwrap());
    assert!(message.contains(&format!("error: {address} is in use by another process (hint: ")), "{message}");
}

#[test]
fn a_pool_that_cannot_be_is_refused_before_anything_listens() {
    let folder = tempfile::tempdir().unwrap();
    let message = refused(&command(folder.path(), "ftp://127.0.0.1", "127.0.0.1:0").output().unwrap());
    assert!(message.starts_with("error: bear.yaml:8:36: "), "{message}");
}
