//! Chat and text completions: a request becomes sequences in the engine, their tokens an answer, whole or
//! streamed. A client that leaves drops the answer, and that takes its sequences out of the engine.

use std::sync::Arc;

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use tokio::sync::mpsc;

use super::{
    answer::Answer,
    error::ApiError,
    format::{Api, Heading},
    owner::{Emission, Gone, OwnerHandle, Submission},
    plan::{Draw, Plan},
    server::Server,
};
use crate::wire::{
    openai::{DONE, Request, Shape, Usage},
    sse,
};

/// `POST /v1/chat/completions`.
pub(super) async fn chat_completions(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer(server, Api::Chat, &headers, &body).await
}

/// `POST /v1/completions`.
pub(super) async fn completions(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer(server, Api::Completion, &headers, &body).await
}

async fn answer(
    server: Arc<Server>,
    api: Api,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, ApiError> {
    let received_us = server.owner.now_us();
    let shape = if api == Api::Chat { Shape::Chat } else { Shape::Completion };
    let request = Request::parse(body, shape)?;
    server.check_model(&request.model)?;
    let draw = server.next_draw();
    let plan = Plan::new(&request, body, &server.profile, draw)?;
    let request_id = request_id(headers, draw);
    let heading = Heading {
        id: format!("{}{request_id}", api.id_prefix()),
        created: server.owner.unix_s(),
        model: request.model.clone(),
    };
    let ids = EngineIds { api, request_id: &request_id, draw, choices: request.n };
    let running = Running::submit(&server.owner, plan, &ids, received_us)?;
    if request.stream {
        Ok(stream(running, api, heading, request.include_usage))
    } else {
        whole(running, api, &heading).await
    }
}

/// Returns the client's `X-Request-Id`, else one made from the draw.
fn request_id(headers: &HeaderMap, draw: Draw) -> String {
    let given = headers.get("x-request-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    given.map_or_else(|| format!("{:016x}{:08x}", mixed(draw), draw.number), str::to_string)
}

/// Spreads a draw over 64 bits (the finaliser of SplitMix64).
const fn mixed(draw: Draw) -> u64 {
    let mut z = draw.seed ^ draw.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Names the sequences of one request, decorated as vLLM does.
struct EngineIds<'a> {
    api: Api,
    request_id: &'a str,
    draw: Draw,
    choices: u32,
}

impl EngineIds<'_> {
    /// Returns the engine's id of a sequence: child index, prefix, request, prompt index, eight hex digits.
    fn internal(&self, sequence: u32) -> String {
        let (prompt, child) = (sequence / self.choices, sequence % self.choices);
        let child = if self.choices > 1 { format!("{child}_") } else { String::new() };
        let prompt = if self.api == Api::Completion { format!("-{prompt}") } else { String::new() };
        let suffix = mixed(self.draw) as u32;
        format!("{child}{}{}{prompt}-{suffix:08x}", self.api.id_prefix(), self.request_id)
    }

    /// Returns the id that snapshots show: the request's own; further sequences of it are numbered, since
    /// ids are unique there.
    fn public(&self, sequence: u32) -> String {
        if sequence == 0 { self.request_id.to_string() } else { format!("{}#{sequence}", self.request_id) }
    }
}

/// The sequences of one request in the engine. Dropping it takes the unfinished ones out.
struct Running {
    owner: OwnerHandle,
    request_id: String,
    received_us: u64,
    first_token_us: Option<u64>,
    last_token_us: u64,
    tokens: mpsc::UnboundedReceiver<Emission>,
    answers: Vec<Answer>,
    unfinished: Vec<Option<String>>,
    prompt_tokens: u32,
    cached_tokens: u32,
    output_tokens: u32,
}

impl Running {
    fn submit(
        owner: &OwnerHandle,
        plan: Plan,
        ids: &EngineIds<'_>,
        received_us: u64,
    ) -> Result<Self, ApiError> {
        let (sender, tokens) = mpsc::unbounded_channel();
        let mut running = Self {
            owner: owner.clone(),
            request_id: ids.request_id.to_owned(),
            received_us,
            first_token_us: None,
            last_token_us: received_us,
            tokens,
            answers: Vec::with_capacity(plan.sequences.len()),
            unfinished: Vec::with_capacity(plan.sequences.len()),
            prompt_tokens: plan.prompt_tokens,
            cached_tokens: 0,
            output_tokens: 0,
        };
        for (choice, sequence) in (0..).zip(plan.sequences) {
            let id = ids.internal(choice);
            let submission = Submission {
                request: sequence.request(id.clone(), plan.priority),
                public_id: ids.public(choice),
                choice,
                received_us,
                joins_us: received_us + plan.ingress_us,
                egress_us: plan.egress_us,
                stops: sequence.answer.stopped,
                tokens: sender.clone(),
            };
            running.unfinished.push(Some(id));
            running.answers.push(sequence.answer);
            owner.submit(submission)?;
        }
        Ok(running)
    }

    /// Returns the next token once the client may see it; none when the engine is gone.
    async fn next(&mut self) -> Option<Emission> {
        let emission = self.tokens.recv().await?;
        self.owner.sleep_until(emission.due_us).await;
        self.output_tokens += 1;
        self.first_token_us.get_or_insert(emission.due_us);
        self.last_token_us = self.last_token_us.max(emission.due_us);
        if emission.choice == 0 {
            self.cached_tokens = emission.cached_tokens;
        }
        if emission.last
            && let Some(id) = self.unfinished.get_mut(emission.choice as usize)
        {
            *id = None;
        }
        Some(emission)
    }

    fn is_finished(&self) -> bool {
        self.unfinished.iter().all(Option::is_none)
    }

    const fn usage(&self) -> Usage {
        Usage::new(self.prompt_tokens, self.cached_tokens, self.output_tokens)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ms = |at_us: u64| at_us.saturating_sub(self.received_us) as f64 / 1e3;
        tracing::info!(
            id = %self.request_id,
            prompt_tokens = self.prompt_tokens,
            cached_tokens = self.cached_tokens,
            output_tokens = self.output_tokens,
            ttft_ms = self.first_token_us.map(ms),
            last_token_ms = ms(self.last_token_us),
            "{}",
            if self.is_finished() { "answered" } else { "broke off" }
        );
        for id in self.unfinished.drain(..).flatten() {
            self.owner.abort(id);
        }
    }
}

async fn whole(mut running: Running, api: Api, heading: &Heading) -> Result<Response, ApiError> {
    while !running.is_finished() {
        if running.next().await.is_none() {
            return Err(Gone.into());
        }
    }
    Ok(Json(api.whole(heading, &running.answers, running.usage())).into_response())
}

struct Streaming {
    running: Running,
    api: Api,
    heading: Heading,
    include_usage: bool,
    opened: Vec<bool>,
    ended: bool,
}

fn stream(running: Running, api: Api, heading: Heading, include_usage: bool) -> Response {
    let opened = vec![api != Api::Chat; running.answers.len()];
    let streaming = Streaming { running, api, heading, include_usage, opened, ended: false };
    let pieces = futures::stream::unfold(streaming, |mut streaming| async move {
        let piece = streaming.next_piece().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(piece)), streaming))
    });
    ([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(pieces)).into_response()
}

impl Streaming {
    /// Returns the next bytes of the stream: a token's chunk, with the opening one before the first and the
    /// end after the last; none after the end.
    async fn next_piece(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let mut piece = Vec::with_capacity(512);
        let Some(emission) = self.running.next().await else {
            self.ended = true;
            // An error after the first byte is an event like any other, and the end marker still follows.
            sse::encode("", &ApiError::from(Gone).to_json(), &mut piece);
            sse::encode("", DONE, &mut piece);
            return Some(piece);
        };
        let choice = emission.choice as usize;
        if let Some(opened @ false) = self.opened.get_mut(choice) {
            *opened = true;
            sse::encode("", &self.api.opening(&self.heading, emission.choice), &mut piece);
        }
        if let Some(answer) = self.running.answers.get(choice) {
            sse::encode("", &self.api.chunk(&self.heading, answer, emission), &mut piece);
        }
        if self.running.is_finished() {
            self.ended = true;
            if self.include_usage {
                sse::encode("", &self.api.usage(&self.heading, self.running.usage()), &mut piece);
            }
            sse::encode("", DONE, &mut piece);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_decorated_inside_and_bare_outside() {
        let draw = Draw { seed: 1, number: 4 };
        let ids = |api, choices| EngineIds { api, request_id: "abc", draw, choices };
        let suffix = format!("{:08x}", mixed(draw) as u32);
        assert_eq!(ids(Api::Chat, 1).internal(0), format!("chatcmpl-abc-{suffix}"));
        assert_eq!(ids(Api::Chat, 2).internal(1), format!("1_chatcmpl-abc-{suffix}"));
        assert_eq!(ids(Api::Completion, 1).internal(2), format!("cmpl-abc-2-{suffix}"));
        assert_eq!(ids(Api::Chat, 2).public(0), "abc");
        assert_eq!(ids(Api::Chat, 2).public(1), "abc#1");
    }

    #[test]
    fn an_absent_request_id_is_made_and_differs_by_place() {
        let made = |number| request_id(&HeaderMap::new(), Draw { seed: 1, number });
        assert_ne!(made(0), made(1));
        assert_eq!(made(0), made(0));
    }
}
