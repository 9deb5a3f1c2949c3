//! One request, top to bottom: receive, describe, route, forward, settle.

use std::sync::{Arc, Mutex};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Request};
use tokio::time::Instant;
use tracing::{Instrument, info_span};

use super::{
    Gateway,
    describe::describe,
    error::Refusal,
    forward::{Again, Failed, Opened, forward},
    headers::{REQUEST_ID, tell_decision},
    receive::{Received, receive, request_id},
    record::{Attempted, Journey},
    spans::{self, Stages},
};
use crate::{
    domain::{Decision, Endpoint},
    router::{Attempt, Described, RouteError, Routed},
    telemetry::{clock::Stopwatch, names::span},
};

/// Serves one request to the end of its headers; the body it returns carries the rest.
pub(super) async fn serve(gateway: Arc<Gateway>, endpoint: Endpoint, request: Request<Body>) -> Response {
    let id = request_id(request.headers());
    let shown = id.as_deref().unwrap_or("-").to_owned();
    let mut journey = Journey::begin(&gateway.meters, &gateway.clock, &shown, endpoint_names(&endpoint));
    spans::follow_trace(&journey.shared.span, request.headers());
    let whole = journey.shared.span.clone();
    let answered = match id {
        Ok(id) => answer(&gateway, id, endpoint, request, &journey).instrument(whole).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = match answered {
        Ok((mut opened, decision, decision_us)) => {
            journey.answers(opened.status);
            tell_decision(&mut opened.headers, &decision, decision_us);
            opened.body.carry(journey);
            let mut response = Response::new(Body::new(opened.body));
            *response.status_mut() = opened.status;
            *response.headers_mut() = opened.headers;
            response
        }
        Err(refusal) => {
            let shed = matches!(refusal, Refusal::NoneEligible { .. } | Refusal::NoneUsable { .. });
            journey.refuses(refusal.status(), refusal.rule(), shed);
            refusal.into_response()
        }
    };
    if let Ok(id) = HeaderValue::from_str(&shown) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The page to read: every step of a request by name.
async fn answer(
    gateway: &Gateway,
    id: String,
    endpoint: Endpoint,
    request: Request<Body>,
    journey: &Journey,
) -> Result<(Opened, Decision, u64), Refusal> {
    let received = receive(gateway, id, endpoint, request).instrument(info_span!(span::RECEIVE)).await?;
    journey.asks(&received.request);
    let ends_at = Instant::now() + gateway.limits.total;
    let described = describe(gateway, &received).instrument(info_span!(span::DESCRIBE)).await;
    let mut tries = Tries::default();
    loop {
        let (routed, decision_us) = match route(gateway, &received, &described, &tries, journey) {
            Ok(routed) => routed,
            Err(error) => return Err(tries.last_refusal.take().unwrap_or_else(|| error.into())),
        };
        let Routed { decision, instance, reservation } = routed;
        let model = decision.chosen().map_or("", |chosen| chosen.model.as_str());
        match forward(gateway, &received, reservation, model, ends_at).await {
            // The answer settles its reservation itself, when its body ends or is dropped.
            Ok(opened) => return Ok((opened, decision, decision_us)),
            Err(failed) => tries.after(gateway, &described, instance, failed)?,
        }
    }
}

/// Decides and reserves, and keeps the decision for the end of the attempt.
fn route(
    gateway: &Gateway,
    received: &Received,
    described: &Described,
    tries: &Tries,
    journey: &Journey,
) -> Result<(Routed, u64), RouteError> {
    let _routing = info_span!(span::ROUTE).entered();
    let watch = Stopwatch::start();
    let attempted = Arc::new(Attempted {
        meters: Arc::clone(&gateway.meters),
        recorder: gateway.recorder.clone(),
        decided_at: gateway.clock.now(),
        query: (&described.query).into(),
        features: described.features.clone(),
        request: Arc::clone(&received.request),
        journey: Arc::clone(&journey.shared),
        decision: Mutex::new(None),
    });
    let attempt = Attempt {
        id: format!("{:032x}", rand::random::<u128>()),
        exclude: &tries.failed,
        number: tries.count + 1,
        sink: attempted.clone(),
    };
    let stages = Stages::new(&gateway.meters.stages);
    let routed = gateway.router.route(described, attempt, &gateway.clock, &mut rand::rng(), &stages)?;
    let decision_s = watch.elapsed_s();
    attempted.follow(routed.decision.clone());
    gateway.meters.decided(&routed.decision, decision_s);
    spans::note_decision(&journey.shared.span, &routed.decision);
    Ok((routed, (decision_s * 1e6).round() as u64))
}

/// The attempts made so far.
#[derive(Default)]
struct Tries {
    /// Pool positions that failed.
    failed: Vec<usize>,
    /// Attempts that failed, on whichever instance.
    count: u32,
    /// A reused connection was closed before any byte, once.
    stale: bool,
    last_refusal: Option<Refusal>,
}

impl Tries {
    /// Decides whether another attempt follows a failed one.
    fn after(
        &mut self,
        gateway: &Gateway,
        described: &Described,
        instance: usize,
        failed: Failed,
    ) -> Result<(), Refusal> {
        let Failed { refusal, again, cause } = failed;
        let elsewhere = self.failed.len() < gateway.config.upstream.retries as usize;
        let follows = match again {
            Again::No => false,
            Again::Anywhere if !self.stale => true,
            Again::Anywhere | Again::Elsewhere => elsewhere && time_is_left(gateway, described),
        };
        if !follows {
            return Err(refusal);
        }
        if again == Again::Anywhere && !self.stale {
            self.stale = true;
        } else {
            self.failed.push(instance);
        }
        self.count += 1;
        gateway.meters.retried(instance, cause);
        // The refusal itself may quote the engine, which may quote the prompt: it is not logged.
        let instance = gateway.router.pool().spec(instance).id.as_str();
        tracing::warn!(
            instance,
            cause,
            rule = refusal.rule(),
            "an attempt failed before its first byte; trying again"
        );
        self.last_refusal = Some(refusal);
        Ok(())
    }
}

/// Whether the request's target, where it has one, still lies ahead.
fn time_is_left(gateway: &Gateway, described: &Described) -> bool {
    let spent = gateway.clock.now().since(described.query.arrived);
    described.query.ttft_target.is_none_or(|target| spent < target)
}

/// Returns an endpoint's name in metrics, and its route.
const fn endpoint_names(endpoint: &Endpoint) -> (&'static str, &'static str) {
    match endpoint {
        Endpoint::Chat => ("chat", "/v1/chat/completions"),
        Endpoint::Completions => ("completions", "/v1/completions"),
        Endpoint::Other(_) => ("other", "/v1/{path}"),
    }
}
