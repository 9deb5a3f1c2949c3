//! The routes of a simulated engine.

use std::sync::Arc;

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

use super::{answering, error::ApiError, plan, server::Server};
use crate::wire::{
    openai::{ModelCard, ModelList, Request, Shape},
    snapshot,
};

/// The largest body taken, bytes; the router's own default.
const MAX_BODY_BYTES: usize = 32 << 20;

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
        .fallback(|| async { ApiError::not_found("This engine has no such path.".to_string()) })
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
        .map_err(|error| ApiError::bad_request(format!("The body is not JSON: {error}")))?;
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
        return Err(ApiError::not_found(message).with_param("dp_rank"));
    }
    let document = snapshot::encode(&server.owner.snapshot().await?);
    Ok(([(CONTENT_TYPE, "application/json")], document).into_response())
}
