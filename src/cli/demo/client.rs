//! Sends one of the demo's requests to the router, as any OpenAI client would, and watches the answer.

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::traffic::Ask;
use crate::{
    telemetry::clock::Stopwatch,
    wire::{openai::observe_chunk, sse::SseDecoder},
};

/// The model name that leaves the choice to the router, at its default.
const VIRTUAL_MODEL: &str = "auto";

/// What became of one request, as its client saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// What was asked.
    pub(super) task: &'static str,
    /// The model that answered; absent: none did.
    pub(super) model: Option<String>,
    /// The router's name for the request.
    pub(super) request_id: String,
    /// Why that instance was chosen.
    pub(super) reason: String,
    /// The router's prediction, milliseconds.
    pub(super) predicted_ttft_ms: Option<f64>,
    /// From sending to the first text, milliseconds.
    pub(super) ttft_ms: Option<f64>,
    /// The target, milliseconds.
    pub(super) target_ms: f64,
}

impl Seen {
    /// Returns whether an answer came to its end.
    pub(super) const fn answered(&self) -> bool {
        self.model.is_some() && self.ttft_ms.is_some()
    }

    /// Returns whether the first token came in time.
    pub(super) fn on_time(&self) -> bool {
        self.ttft_ms.is_some_and(|ttft_ms| ttft_ms <= self.target_ms)
    }
}

/// The body of a request.
pub(super) fn body(ask: &Ask) -> Value {
    json!({
        "model": VIRTUAL_MODEL,
        "stream": true,
        "messages": [{"role": "user", "content": ask.prompt}],
        "metadata": {"task": ask.task},
    })
}

/// Sends a request and reads its answer to the end, telling `first_tokens` of its first token; a failure
/// leaves `model` or `ttft_ms` empty.
pub(super) async fn send(
    client: reqwest::Client,
    url: String,
    ask: Ask,
    first_tokens: UnboundedSender<Seen>,
) -> Seen {
    let mut seen = Seen { task: ask.task, target_ms: ask.ttft_target_ms, ..Seen::default() };
    let sent = Stopwatch::start();
    let request = client
        .post(format!("{url}/v1/chat/completions"))
        .header("x-slo-ttft-ms", format!("{:.0}", ask.ttft_target_ms))
        .json(&body(&ask));
    let Ok(mut response) = request.send().await else { return seen };
    let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
    seen.request_id = header("x-request-id").unwrap_or_default();
    seen.reason = header("x-bear-reason").unwrap_or_default();
    seen.predicted_ttft_ms = header("x-bear-predicted-ttft-ms").and_then(|value| value.parse().ok());
    let model = header("x-bear-model");
    if !response.status().is_success() {
        return seen;
    }
    let mut decoder = SseDecoder::default();
    while let Ok(Some(bytes)) = response.chunk().await {
        let mut has_content = false;
        let decoded =
            decoder.push(&bytes, |event| has_content |= observe_chunk(event.data).content_choices > 0);
        if decoded.is_err() {
            return seen;
        }
        if has_content && seen.ttft_ms.is_none() {
            seen.ttft_ms = Some(sent.elapsed_s() * 1e3);
            // Nobody listens any more once the demo ends.
            _ = first_tokens.send(Seen { model: model.clone(), ..seen.clone() });
        }
    }
    seen.model = model;
    seen
}
