//! The paths and what answers them.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};

use super::{Gateway, describe::describe, error::Refusal, flow, receive};
use crate::{
    domain::{Decision, Endpoint},
    wire::openai::{ModelCard, ModelList},
};

/// Returns the client-facing application.
pub(super) fn app(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/chat/completions", only(post(chat)))
        .route("/v1/completions", only(post(completions)))
        .route("/v1/models", only(get(models)))
        .route("/v1/models/{*id}", only(get(model)))
        .route("/v1/route", only(post(dry_run)))
        .route("/v1/{*path}", only(post(other)))
        .route("/health", only(get(async || "ok")))
        .route("/ready", only(get(ready)))
        .route("/metrics", only(get(metrics)))
        .fallback(no_such_path)
        .with_state(gateway)
}

/// Answers other methods in OpenAI's error shape.
fn only(methods: MethodRouter<Arc<Gateway>>) -> MethodRouter<Arc<Gateway>> {
    methods.fallback(async |method: Method, request: Request<Body>| {
        let refusal = Refusal::Method { path: request.uri().path().to_owned(), method: method.to_string() };
        with_id(request.headers(), refusal.into_response())
    })
}

/// Echoes the client's request id where there is a good one.
fn with_id(headers: &HeaderMap, mut response: Response) -> Response {
    if let Some(id) = receive::request_id(headers).ok().and_then(|id| id.parse().ok()) {
        response.headers_mut().insert(super::headers::REQUEST_ID, id);
    }
    response
}

async fn no_such_path(request: Request<Body>) -> Response {
    let refusal = Refusal::NoSuchPath { path: request.uri().path().to_owned() };
    with_id(request.headers(), refusal.into_response())
}

async fn chat(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    flow::serve(gateway, Endpoint::Chat, request).await
}

async fn completions(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    flow::serve(gateway, Endpoint::Completions, request).await
}

async fn other(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    let endpoint = Endpoint::Other(request.uri().path().to_owned());
    flow::serve(gateway, endpoint, request).await
}

/// Decides without sending or changing anything; takes a chat or a completion body.
async fn dry_run(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    let headers = request.headers().clone();
    let response = match decide(&gateway, request).await {
        Ok(decision) => Json(decision).into_response(),
        Err(refusal) => refusal.into_response(),
    };
    with_id(&headers, response)
}

async fn decide(gateway: &Gateway, request: Request<Body>) -> Result<Decision, Refusal> {
    let id = receive::request_id(request.headers())?;
    let (head, body) = request.into_parts();
    let body = receive::read_body(gateway.config.listen.max_body_mib, &head.headers, body).await?;
    let members = crate::wire::body::Members::scan(&body).map_err(crate::wire::openai::RequestError::from)?;
    let completion = members.last("messages").is_none() && members.last("prompt").is_some();
    let endpoint = if completion { Endpoint::Completions } else { Endpoint::Chat };
    let request = Request::from_parts(head, Body::from(body.clone()));
    let received = receive::receive(gateway, id, endpoint, request).await?;
    let described = describe(gateway, &received).await;
    let now = gateway.clock.now();
    Ok(gateway.router.dry_run(&described, now, &mut rand::rng())?)
}

async fn models(State(gateway): State<Arc<Gateway>>) -> Json<ModelList> {
    Json(ModelList::new(cards(&gateway)))
}

async fn model(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Response {
    let cards = cards(&gateway);
    let known: Vec<String> = cards.iter().map(|card| card.id.clone()).collect();
    match cards.into_iter().find(|card| card.id == id) {
        Some(card) => Json(card).into_response(),
        None => Refusal::UnknownModel { model: id, known }.into_response(),
    }
}

/// The virtual model, then the pool's; the virtual one takes what the longest context takes.
fn cards(gateway: &Gateway) -> Vec<ModelCard> {
    let pool = gateway.router.pool();
    let created = gateway.clock.now().unix_us() / 1_000_000;
    let longest = pool.models().iter().map(|model| model.max_model_len_tokens).max();
    let card = |id: &str, length| ModelCard::new(id, created, "bear", length);
    let mut cards = vec![card(&gateway.router.config().virtual_model, longest)];
    cards.extend(pool.models().iter().map(|model| card(model.id.as_str(), Some(model.max_model_len_tokens))));
    cards
}

/// Ready where at least one instance may be chosen.
async fn ready(State(gateway): State<Arc<Gateway>>) -> (StatusCode, &'static str) {
    let (pool, now) = (gateway.router.pool(), gateway.clock.now());
    if (0..pool.len()).any(|i| pool.view(i, now).usable.is_ok()) {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no usable instance")
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let Some(exposition) = &gateway.exposition else {
        return Refusal::NoSuchPath { path: "/metrics (telemetry.prometheus is off)".into() }.into_response();
    };
    gateway.meters.show_ledgers(gateway.router.pool());
    let kind: (HeaderName, &str) = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], exposition.render()).into_response()
}
