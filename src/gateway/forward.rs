//! Sends one attempt to its instance and waits for its first event; nothing goes to the client before.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, info_span};

use super::{
    Gateway,
    connector::Used,
    error::{self, Refusal, Verdict},
    fault::{Fault, Health, Limit},
    headers,
    observe::Observer,
    offload,
    receive::Received,
    spans,
    stream::{Answer, First, Watch},
};
use crate::{
    domain::{Ending, Endpoint},
    pool::Reservation,
    telemetry::names::{attribute, span},
    wire::{
        body::{self, Edits},
        openai::RequestError,
    },
};

/// Largest error answer read from an instance, bytes.
const MAX_ERROR_BYTES: usize = 1 << 20;
/// How soon after sending a reused connection's end means that its server had already closed it; later
/// it may have died over the request, seconds.
const STALE_WITHIN: Duration = Duration::from_secs(1);

/// An answer whose first event is there.
pub(super) struct Opened {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) answer: Answer,
}

/// An attempt that gave nothing to pass on.
pub(super) struct Failed {
    /// What the client is told if no other attempt follows.
    pub(super) refusal: Refusal,
    /// Whether and where another attempt may follow.
    pub(super) again: Again,
    /// The cause's name in metrics.
    pub(super) cause: &'static str,
}

/// Where another attempt may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Nowhere: the fault is the request's own, or no time is left.
    No,
    /// To another instance.
    Elsewhere,
    /// Anywhere: a reused connection was closed before any byte; once a request.
    Anywhere,
}

/// One attempt: where it goes and how long it may take.
pub(super) struct Attempt<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) received: &'a Received,
    /// Which attempt of the request, from 1.
    pub(super) number: u32,
    /// The chosen instance's model, by its own name.
    pub(super) model: &'a str,
    /// When the request's time is up altogether.
    pub(super) ends_at: Instant,
}

/// Sends the request to the reserved instance.
///
/// # Errors
/// [`Failed`], the reservation settled.
pub(super) async fn forward(attempt: Attempt<'_>, reservation: Reservation) -> Result<Opened, Failed> {
    let Attempt { gateway, received, number, model, ends_at } = attempt;
    let instance = reservation.instance();
    let name = gateway.router.pool().spec(instance).id.to_string();
    let step = info_span!(
        span::FORWARD,
        { attribute::OTEL_KIND } = "client",
        { attribute::OTEL_STATUS } = tracing::field::Empty,
        { attribute::ERROR_TYPE } = tracing::field::Empty,
        { attribute::ATTEMPT } = number,
        { attribute::ATTEMPT_ID } = reservation.attempt_id(),
        { attribute::INSTANCE } = name.as_str(),
        { attribute::SERVER_ADDRESS } = gateway.upstreams[instance].base.host().unwrap_or_default(),
    );
    // An answer that is not streamed sends nothing before it is whole.
    let overdue_at = Instant::now() + gateway.limits.first_byte;
    let patience = if received.request.stream { overdue_at.min(ends_at) } else { ends_at };
    let sending = Sending {
        gateway,
        received,
        instance,
        name,
        health: Health { pool: gateway.router.pool().clone(), clock: gateway.clock.clone(), instance },
        patience,
        overdue_at,
        ends_at,
    };
    let sent = sending.run(reservation, model).instrument(step.clone()).await;
    if let Err(failed) = &sent {
        spans::note_failure(&step, failed.refusal.rule());
    }
    sent
}

struct Sending<'a> {
    gateway: &'a Gateway,
    received: &'a Received,
    instance: usize,
    name: String,
    health: Health,
    /// When the wait for the first event is over.
    patience: Instant,
    /// From when on silence is the instance's fault, streamed or not.
    overdue_at: Instant,
    ends_at: Instant,
}

impl Sending<'_> {
    async fn run(&self, reservation: Reservation, model: &str) -> Result<Opened, Failed> {
        let (request, strip_usage) = match self.request(&reservation, model).await {
            Ok(built) => built,
            Err(refusal) => {
                reservation.finish(Ending::Failed);
                return Err(self.failed(refusal, "request"));
            }
        };
        let response = match self.send(request).await {
            Ok(response) => response,
            Err(failed) => {
                let timed_out = matches!(failed.refusal, Refusal::TimedOut { .. });
                reservation.finish(if timed_out { Ending::TimedOut } else { Ending::Failed });
                return Err(failed);
            }
        };
        if error::is_answer(response.status()) {
            return self.open(reservation, response, strip_usage).await;
        }
        let refusal = self.error_answer(response).await;
        reservation.finish(Ending::Failed);
        Err(self.failed(refusal, "status"))
    }

    /// Builds the upstream request; returns whether the usage chunk was asked for by the gateway.
    async fn request(
        &self,
        reservation: &Reservation,
        model: &str,
    ) -> Result<(Request<Full<Bytes>>, bool), Refusal> {
        let received = self.received;
        let asked = &received.request;
        let observable = !matches!(received.endpoint, Endpoint::Other(_));
        let strip_usage = observable && asked.stream && !asked.include_usage;
        let rename = (asked.model != model).then(|| model.to_owned());
        let edited = if rename.is_none() && !strip_usage {
            received.body.clone()
        } else {
            let body = received.body.clone();
            let edit =
                move || body::edit(&body, Edits { model: rename.as_deref(), include_usage: strip_usage });
            offload::over_body(received.body.len(), edit).await?.map_err(RequestError::from)?
        };
        let uri = self.gateway.upstreams[self.instance]
            .uri(&received.path_and_query)
            .ok_or(Refusal::Internal { why: "the upstream address could not be built" })?;
        let mut request = Request::new(Full::new(edited));
        *request.method_mut() = received.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() =
            headers::upstream(&received.headers, &self.gateway.authorization, reservation.attempt_id());
        Ok((request, strip_usage))
    }

    /// Sends it and waits for the answer's head.
    async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failed> {
        let connection = capture_connection(&mut request);
        let began = Instant::now();
        let sent = timeout_at(self.patience, self.gateway.client.request(request)).await;
        match sent {
            Err(_) => Err(self.timed_out()),
            Ok(Ok(response)) => {
                if let Some(used) = response.extensions().get::<Used>() {
                    used.mark();
                }
                Ok(response)
            }
            Ok(Err(error)) => {
                let mut extras = http::Extensions::new();
                if let Some(connected) = connection.connection_metadata().as_ref() {
                    connected.get_extras(&mut extras);
                }
                let reused = extras.get::<Used>().is_some_and(Used::is_marked);
                Err(self.not_sent(error, reused && began.elapsed() < STALE_WITHIN))
            }
        }
    }

    fn not_sent(&self, error: hyper_util::client::legacy::Error, may_be_stale: bool) -> Failed {
        let instance = self.name.clone();
        if error.is_connect() && is_time_out(&error) {
            return self.failed(Refusal::TimedOut { instance, limit: Limit::Connect }, "timeout");
        }
        let stale = may_be_stale && !error.is_connect();
        let refusal = Refusal::Upstream { instance, fault: Fault::Send(error) };
        if stale {
            return Failed { refusal, again: Again::Anywhere, cause: "stale-connection" };
        }
        self.failed(refusal, "connect")
    }

    fn timed_out(&self) -> Failed {
        let limit = if self.patience >= self.ends_at { Limit::Total } else { Limit::FirstByte };
        // The end of the whole time blames nobody, but an instance that was silent for long did not work either.
        if limit == Limit::Total && Instant::now() >= self.overdue_at {
            self.health.failed();
        }
        self.failed(Refusal::TimedOut { instance: self.name.clone(), limit }, "timeout")
    }

    /// Reads an error answer.
    async fn error_answer(&self, response: Response<Incoming>) -> Refusal {
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
        let reading = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect();
        let until = self.ends_at.min(Instant::now() + self.gateway.limits.idle);
        let body = match timeout_at(until, reading).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => Bytes::new(),
        };
        Refusal::of_answer(self.name.clone(), status, body, retry_after)
    }

    /// Waits for the first event of a good answer.
    async fn open(
        &self,
        reservation: Reservation,
        response: Response<Incoming>,
        strip_usage: bool,
    ) -> Result<Opened, Failed> {
        let (head, incoming) = response.into_parts();
        // An encoded stream cannot be followed; it passes as it is.
        let events = head.headers.get(header::CONTENT_TYPE).is_some_and(is_event_stream)
            && !head.headers.contains_key(header::CONTENT_ENCODING);
        let close_delimited = !head.headers.contains_key(header::CONTENT_LENGTH)
            && !head.headers.contains_key(header::TRANSFER_ENCODING);
        let watch = Watch {
            observer: Observer::new(events, strip_usage),
            needs_marker: close_delimited && !matches!(self.received.endpoint, Endpoint::Other(_)),
            idle: self.gateway.limits.idle,
            ends_at: self.ends_at,
            instance: self.name.clone(),
            health: self.health.clone(),
            span: tracing::Span::current(),
        };
        let mut answer = Answer::new(incoming, reservation, watch);
        let first = timeout_at(self.patience, answer.first_event()).await;
        let instance = self.name.clone();
        match first {
            Err(_) => {
                answer.abandon(Ending::TimedOut);
                Err(self.timed_out())
            }
            Ok(First::Ready) => {
                self.health.began();
                let mut headers = head.headers;
                headers::strip_hop_by_hop(&mut headers);
                if events {
                    headers.remove(header::CONTENT_LENGTH);
                }
                Ok(Opened { status: head.status, headers, answer })
            }
            Ok(First::Error(event)) => {
                answer.abandon(Ending::Failed);
                Err(self.failed(Refusal::of_event(instance, event.status, event.data), "error-event"))
            }
            Ok(First::Broken(fault)) => {
                answer.abandon(fault.ending());
                Err(self.failed(Refusal::Upstream { instance, fault }, "broken"))
            }
        }
    }

    /// Tells the instance's health of a failed attempt and says what may follow.
    fn failed(&self, refusal: Refusal, cause: &'static str) -> Failed {
        match refusal.verdict() {
            Verdict::Failed => self.health.failed(),
            Verdict::Answered => self.health.answered(),
            Verdict::Unknown => {}
        }
        let again = if refusal.may_pass_elsewhere() { Again::Elsewhere } else { Again::No };
        Failed { refusal, again, cause }
    }
}

fn is_event_stream(content_type: &HeaderValue) -> bool {
    content_type.to_str().is_ok_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}

/// Returns whether an I/O time-out is among an error's causes.
fn is_time_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
        {
            return true;
        }
        next = cause.source();
    }
    false
}
