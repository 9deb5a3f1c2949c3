//! The paths and what answers them.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use tokio::time::Instant;

use super::{
    Gateway,
    describe::{For, describe},
    error::Refusal,
    flow, offload, receive,
};
use crate::{
    domain::{Decision, Endpoint},
    wire::{
        body::Members,
        openai::{ModelCard, ModelList, RequestError},
    },
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
        .layer(from_fn(catch_panics))
        .with_state(gateway)
}

/// Answers a 500 where a handler panics. What it held is dropped: reservations settle themselves.
async fn catch_panics(request: Request<Body>, next: Next) -> Response {
    let headers = request.headers().clone();
    let answering = std::panic::AssertUnwindSafe(next.run(request)).catch_unwind();
    answering.await.unwrap_or_else(|_| {
        // The panic's text may quote the prompt.
        tracing::error!("a request's handler panicked");
        with_id(&headers, Refusal::Internal { why: "the request could not be handled" }.into_response())
    })
}

/// Answers other methods in OpenAI's error shape.
fn only(methods: MethodRouter<Arc<Gateway>>) -> MethodRouter<Arc<Gateway>> {
    methods.fallback(async |method: Method, request: Request<Body>| {
        let refusal = Refusal::Method { path: request.uri().path().to_owned(), method: method.to_string() };
        with_id(request.headers(), refusal.into_response())
    })
}

/// Echoes the client's request id, or a fresh one where there is no good one.
fn with_id(headers: &HeaderMap, mut response: Response) -> Response {
    let id = receive::request_id(headers).unwrap_or_else(|_| receive::fresh_id());
    if let Ok(id) = HeaderValue::from_str(&id) {
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
    let ends_at = Instant::now() + gateway.limits.total;
    let (head, body) = request.into_parts();
    let body = receive::read_body(gateway, &head.headers, body, ends_at).await?;
    let whole = body.clone();
    let is_completion = move || {
        let members = Members::scan(&whole)?;
        Ok(members.last("messages").is_none() && members.last("prompt").is_some())
    };
    let completion = offload::over_body(body.len(), is_completion).await?.map_err(RequestError::Body)?;
    let endpoint = if completion { Endpoint::Completions } else { Endpoint::Chat };
    let request = Request::from_parts(head, Body::from(body));
    let received = receive::receive(gateway, id, endpoint, request, ends_at).await?;
    let seen = describe(gateway, &received, For::Show).await;
    let now = gateway.clock.now();
    Ok(gateway.dice.lend(|dice| gateway.router.dry_run(&seen.described, now, dice))?)
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
async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<&'static str, Refusal> {
    let (pool, now) = (gateway.router.pool(), gateway.clock.now());
    let usable = (0..pool.len()).any(|i| pool.usable(i, now).is_ok());
    if usable { Ok("ready") } else { Err(Refusal::NotReady) }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let Some(exposition) = &gateway.exposition else {
        return Refusal::NoSuchPath { path: "/metrics (telemetry.prometheus is off)".into() }.into_response();
    };
    gateway.meters.show_ledgers(gateway.router.pool());
    let kind: (HeaderName, &str) = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], exposition.render()).into_response()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_500_in_openais_shape() {
        let panics = get(async || -> &'static str { panic!("a-secret-prompt") });
        let app: Router = Router::new().route("/", panics).layer(from_fn(catch_panics));
        let request = Request::get("/").header("x-request-id", "mine").body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["x-request-id"], "mine");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "internal");
        assert!(!body.to_string().contains("a-secret-prompt"));
    }
}
