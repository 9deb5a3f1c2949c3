//! The routes of a simulated engine, and its errors in OpenAI's shape as vLLM words them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Query, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Profile, answering,
    owner::{Gone, OwnerHandle},
    plan::{self, Draw},
};
use crate::wire::{
    openai::{ErrorBody, ErrorDetail, ModelCard, ModelList, Request, RequestError, Shape},
    snapshot,
};

/// The largest body taken, bytes; the router's own default.
const MAX_BODY_BYTES: usize = 32 << 20;

/// One served engine.
pub(super) struct Server {
    /// Its truth.
    pub(super) profile: Profile,
    /// Fixes lengths, words, delays and noise.
    pub(super) seed: u64,
    /// When it started, Unix seconds.
    pub(super) started_unix_s: u64,
    /// The task that owns the engine.
    pub(super) owner: OwnerHandle,
    arrivals: AtomicU64,
}

impl Server {
    /// Wraps a started engine.
    #[must_use]
    pub(super) const fn new(profile: Profile, seed: u64, owner: OwnerHandle, started_unix_s: u64) -> Self {
        Self { profile, seed, started_unix_s, owner, arrivals: AtomicU64::new(0) }
    }

    /// Takes the next place in the order of arrival.
    pub(super) fn next_draw(&self) -> Draw {
        Draw { seed: self.seed, number: self.arrivals.fetch_add(1, Ordering::Relaxed) }
    }

    /// Refuses any model but the served one.
    ///
    /// # Errors
    /// [`ApiError`] 404.
    pub(super) fn check_model(&self, model: &str) -> Result<(), ApiError> {
        if model == self.profile.model {
            return Ok(());
        }
        let message =
            format!("The model `{model}` does not exist; this engine serves `{}`.", self.profile.model);
        Err(ApiError::new(StatusCode::NOT_FOUND, "NotFoundError", "model_not_found", message)
            .with_param("model"))
    }
}

/// Makes the routes.
pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(answering::chat_completions))
        .route("/v1/completions", post(answering::completions))
        .route("/v1/models", get(models))
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/ping", get(|| async { StatusCode::OK }))
        .route("/tokenize", post(tokenize))
        .route("/metrics", get(metrics))
        .route("/bear/snapshot", get(bear_snapshot))
        .fallback(|| async {
            ApiError::new(StatusCode::NOT_FOUND, "NotFoundError", "not_found", "Not Found".to_string())
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(server)
}

async fn models(State(server): State<Arc<Server>>) -> Json<ModelList> {
    let max_model_len = Some(server.profile.engine.max_model_len);
    Json(ModelList::new(vec![ModelCard::new(
        &server.profile.model,
        server.started_unix_s,
        "bear",
        max_model_len,
    )]))
}

/// `POST /tokenize`: vLLM's shape, for a prompt or messages. The model may be left out.
async fn tokenize(State(server): State<Arc<Server>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut value: Value = serde_json::from_slice(&body)
        .map_err(|error| ApiError::bad_request("json_invalid", format!("The body is not JSON: {error}")))?;
    if let Some(members) = value.as_object_mut() {
        members.entry("model").or_insert_with(|| json!(server.profile.model));
    }
    let shape = if value.get("messages").is_some() { Shape::Chat } else { Shape::Completion };
    let request = Request::parse(value.to_string().as_bytes(), shape)?;
    server.check_model(&request.model)?;
    let tokens = plan::prompts(&request, &server.profile).into_iter().next().unwrap_or_default();
    Ok(Json(json!({
        "count": tokens.len(),
        "max_model_len": server.profile.engine.max_model_len,
        "tokens": tokens,
        "token_strs": null,
    })))
}

async fn metrics(State(server): State<Arc<Server>>) -> Result<Response, ApiError> {
    let (metrics, gauges) = server.owner.metrics().await?;
    let page = metrics.render(gauges, &server.profile.model, &server.profile.engine);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response())
}

#[derive(Debug, Deserialize)]
struct SnapshotQuery {
    #[serde(default)]
    dp_rank: u32,
}

async fn bear_snapshot(
    State(server): State<Arc<Server>>,
    Query(query): Query<SnapshotQuery>,
) -> Result<Response, ApiError> {
    if query.dp_rank != 0 {
        let message = format!("This engine has no data-parallel rank {}; it has rank 0 only.", query.dp_rank);
        return Err(ApiError::new(StatusCode::NOT_FOUND, "NotFoundError", "unknown_rank", message)
            .with_param("dp_rank"));
    }
    let document = snapshot::encode(&server.owner.snapshot().await?);
    Ok(([(CONTENT_TYPE, "application/json")], document).into_response())
}

/// A refused request.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: Box<ErrorDetail>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &str, code: &str, message: String) -> Self {
        Self { status, body: Box::new(ErrorBody::new(kind, code, message).error) }
    }

    fn with_param(mut self, param: &str) -> Self {
        self.body.param = Some(param.to_string());
        self
    }

    /// Makes a 400.
    #[must_use]
    pub(super) fn bad_request(code: &str, message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", code, message)
    }

    /// Makes a 400 for a member's value.
    #[must_use]
    pub(super) fn bad_value(param: &str, message: &str) -> Self {
        Self::bad_request("invalid_value", message.to_string()).with_param(param)
    }

    /// Makes the 400 for a prompt over the context length.
    #[must_use]
    pub(super) fn too_long(prompt_tokens: u32, max_model_len: u32) -> Self {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens, output included, but the request \
             has {prompt_tokens} input tokens. Shorten the input."
        );
        Self::bad_request("context_length_exceeded", message).with_param("input_tokens")
    }

    /// Returns the member at fault.
    #[cfg(test)]
    pub(super) fn param(&self) -> Option<&str> {
        self.body.param.as_deref()
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let refused = Self::bad_request("invalid_request", error.to_string());
        match error.param() {
            Some(param) => refused.with_param(param),
            None => refused,
        }
    }
}

impl From<Gone> for ApiError {
    fn from(gone: Gone) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", "shut_down", gone.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: *self.body })).into_response()
    }
}
