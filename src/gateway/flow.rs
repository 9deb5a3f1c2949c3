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
    describe::{For, Seen, describe},
    error::Refusal,
    forward::{self, Again, Failed, Opened, forward},
    headers::{REQUEST_ID, tell_decision},
    receive::{fresh_id, receive, request_id},
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
    // A refusal of a bad id has a good one, to be found in the logs by.
    let shown = id.as_ref().map_or_else(|_| fresh_id(), Clone::clone);
    let mut journey = Journey::begin(&gateway.meters, &gateway.clock, &shown, endpoint_names(&endpoint));
    spans::follow_trace(&journey.shared.span, request.headers());
    let whole = journey.shared.span.clone();
    let answered = match id {
        Ok(id) => answer(&gateway, id, endpoint, request, &journey).instrument(whole).await,
        Err(refusal) => Err(refusal),
    };
    let mut response = match answered {
        Ok((Opened { status, mut headers, answer }, decision, decision_us)) => {
            journey.answers(status);
            tell_decision(&mut headers, &decision, decision_us);
            let mut response = Response::new(Body::new(answer.into_body(journey)));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
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
    let ends_at = Instant::now() + gateway.limits.total;
    let receiving = receive(gateway, id, endpoint, request, ends_at);
    let received = receiving.instrument(info_span!(span::RECEIVE)).await?;
    journey.asks(&received);
    let seen = describe(gateway, &received, For::Sending).instrument(info_span!(span::DESCRIBE)).await;
    let mut tries = Tries::default();
    loop {
        let (routed, decision_us) = match route(gateway, &seen, &tries, journey) {
            Ok(routed) => routed,
            Err(error) => return Err(tries.last.map_or_else(|| error.into(), |last| last.refusal)),
        };
        tries.announce(gateway);
        let Routed { decision, instance, reservation } = routed;
        let model = decision.chosen().map_or("", |chosen| chosen.model.as_str());
        let attempt =
            forward::Attempt { gateway, received: &received, number: tries.count + 1, model, ends_at };
        match forward(attempt, reservation).await {
            // The answer settles its reservation itself, when its body ends or is dropped.
            Ok(opened) => return Ok((opened, decision, decision_us)),
            Err(failed) => tries.after(gateway, &seen.described, instance, failed)?,
        }
    }
}

/// Decides and reserves, and keeps the decision for the end of the attempt.
fn route(
    gateway: &Gateway,
    Seen { described, prompt, answers }: &Seen,
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
        observable: described.query.streamed && !matches!(described.query.endpoint, Endpoint::Other(_)),
        answers: *answers,
        features: described.features.clone(),
        prompt: prompt.clone(),
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
    let routed =
        gateway.dice.lend(|dice| gateway.router.route(described, attempt, &gateway.clock, dice, &stages))?;
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
    /// The last one that failed.
    last: Option<LastTry>,
}

/// An attempt that another one may follow.
struct LastTry {
    instance: usize,
    refusal: Refusal,
    cause: &'static str,
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
        self.last = Some(LastTry { instance, refusal, cause });
        Ok(())
    }

    /// Counts and logs that another attempt follows the last one, once there is a place for it.
    fn announce(&self, gateway: &Gateway) {
        let Some(LastTry { instance, refusal, cause }) = &self.last else { return };
        gateway.meters.retried(*instance, cause);
        // The refusal itself may quote the engine, which may quote the prompt: it is not logged.
        let instance = gateway.router.pool().spec(*instance).id.as_str();
        tracing::warn!(
            instance,
            cause,
            rule = refusal.rule(),
            "an attempt failed before its first byte; trying again"
        );
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
