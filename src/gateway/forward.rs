//! Sends one attempt to its instance and waits for its first event; nothing goes to the client before.

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
    error::Refusal,
    headers,
    observe::Observer,
    receive::Received,
    stream::{AnswerBody, First, Watch, describe},
};
use crate::{
    domain::{Ending, Endpoint},
    pool::Reservation,
    telemetry::names::{attribute, span},
    wire::body::{self, Edits},
};

/// Largest error answer read from an instance, bytes.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// An answer whose first event is there.
pub(super) struct Opened {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: AnswerBody,
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

/// Sends the request to the reserved instance.
///
/// # Errors
/// [`Failed`], the reservation settled.
pub(super) async fn forward(
    gateway: &Gateway,
    received: &Received,
    reservation: Reservation,
    model: &str,
    ends_at: Instant,
) -> Result<Opened, Failed> {
    let instance = reservation.instance();
    let step = info_span!(
        span::FORWARD,
        { attribute::OTEL_KIND } = "client",
        { attribute::ATTEMPT_ID } = reservation.attempt_id(),
        { attribute::INSTANCE } = gateway.router.pool().spec(instance).id.as_str(),
        { attribute::SERVER_ADDRESS } = gateway.upstreams[instance].base.host().unwrap_or_default(),
    );
    let attempt = Attempt {
        gateway,
        received,
        instance,
        name: gateway.router.pool().spec(instance).id.to_string(),
        patience: ends_at.min(Instant::now() + gateway.limits.first_byte),
        ends_at,
    };
    attempt.run(reservation, model).instrument(step).await
}

struct Attempt<'a> {
    gateway: &'a Gateway,
    received: &'a Received,
    instance: usize,
    name: String,
    /// When the wait for the first event is over.
    patience: Instant,
    ends_at: Instant,
}

impl Attempt<'_> {
    async fn run(&self, reservation: Reservation, model: &str) -> Result<Opened, Failed> {
        let (request, strip_usage) = match self.request(&reservation, model) {
            Ok(built) => built,
            Err(refusal) => return Err(self.failed(reservation, refusal, Again::No, "request")),
        };
        let response = match self.send(request).await {
            Ok(response) => response,
            Err(failed) => {
                reservation.finish(if failed.cause == "timeout" { Ending::TimedOut } else { Ending::Failed });
                return Err(failed);
            }
        };
        if !response.status().is_success() {
            return Err(self.refused(reservation, response).await);
        }
        self.open(reservation, response, strip_usage).await
    }

    /// Builds the upstream request; returns whether the usage chunk was asked for by the gateway.
    fn request(
        &self,
        reservation: &Reservation,
        model: &str,
    ) -> Result<(Request<Full<Bytes>>, bool), Refusal> {
        let received = self.received;
        let asked = &received.request;
        let observable = !matches!(received.endpoint, Endpoint::Other(_));
        let strip_usage = observable && asked.stream && !asked.include_usage;
        let edits = Edits { model: (asked.model != model).then_some(model), include_usage: strip_usage };
        let edited = body::edit(&received.body, edits).map_err(crate::wire::openai::RequestError::from)?;
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
                Err(self.not_sent(&error, reused))
            }
        }
    }

    fn not_sent(&self, error: &hyper_util::client::legacy::Error, reused: bool) -> Failed {
        if error.is_connect() && is_time_out(error) {
            self.report_failure();
            let refusal = Refusal::TimedOut { instance: self.name.clone(), limit: "connect" };
            return Failed { refusal, again: Again::Elsewhere, cause: "timeout" };
        }
        let refusal = Refusal::Upstream { instance: self.name.clone(), why: describe(error) };
        if !error.is_connect() && reused {
            return Failed { refusal, again: Again::Anywhere, cause: "stale-connection" };
        }
        self.report_failure();
        Failed { refusal, again: Again::Elsewhere, cause: "connect" }
    }

    fn timed_out(&self) -> Failed {
        self.report_failure();
        let total = self.patience >= self.ends_at;
        let limit = if total { "total" } else { "first-byte" };
        let again = if total { Again::No } else { Again::Elsewhere };
        Failed { refusal: Refusal::TimedOut { instance: self.name.clone(), limit }, again, cause: "timeout" }
    }

    /// Reads an error answer and says what follows from it.
    async fn refused(&self, reservation: Reservation, response: Response<Incoming>) -> Failed {
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
        let reading = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect();
        let body = match timeout_at(self.patience, reading).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => Bytes::new(),
        };
        let again = if status.is_server_error() {
            self.report_failure();
            Again::Elsewhere
        } else {
            self.gateway.router.pool().report_success(self.instance);
            if status == StatusCode::TOO_MANY_REQUESTS { Again::Elsewhere } else { Again::No }
        };
        let instance = self.name.clone();
        let message = message_of(&body);
        let refusal =
            Refusal::UpstreamStatus { instance, status, message, own: own_error(body), retry_after };
        self.failed(reservation, refusal, again, "status")
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
            close_delimited,
            idle: self.gateway.limits.idle,
            ends_at: self.ends_at,
            instance: self.name.clone(),
            span: tracing::Span::current(),
        };
        let mut body = AnswerBody::new(incoming, reservation, watch);
        let first = timeout_at(self.patience, body.first_event()).await;
        let why = match first {
            Err(_) => {
                if let Some(reservation) = body.abandon() {
                    reservation.finish(Ending::TimedOut);
                }
                return Err(self.timed_out());
            }
            Ok(First::Ready) => {
                self.gateway.router.pool().report_success(self.instance);
                let mut headers = head.headers;
                headers::strip_hop_by_hop(&mut headers);
                if events {
                    headers.remove(header::CONTENT_LENGTH);
                }
                return Ok(Opened { status: head.status, headers, body });
            }
            Ok(First::Error(why) | First::Broken(why)) => why,
        };
        self.report_failure();
        if let Some(reservation) = body.abandon() {
            reservation.finish(Ending::Failed);
        }
        let refusal = Refusal::Upstream { instance: self.name.clone(), why };
        Err(Failed { refusal, again: Again::Elsewhere, cause: "broken" })
    }

    fn failed(
        &self,
        reservation: Reservation,
        refusal: Refusal,
        again: Again,
        cause: &'static str,
    ) -> Failed {
        reservation.finish(Ending::Failed);
        Failed { refusal, again, cause }
    }

    fn report_failure(&self) {
        self.gateway.router.pool().report_connect_failure(self.instance, self.gateway.clock.now());
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

/// Returns an error answer that already has OpenAI's shape.
fn own_error(body: Bytes) -> Option<Bytes> {
    let value: serde_json::Value = serde_json::from_slice(&body).ok()?;
    value.pointer("/error/message")?.is_string().then_some(body)
}

/// Finds the message in an error answer: OpenAI's member, vLLM's older form, or the start of the text.
fn message_of(body: &[u8]) -> Option<String> {
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) {
        let message = ["/error/message", "/message", "/detail"]
            .iter()
            .find_map(|place| value.pointer(place)?.as_str().map(str::to_owned));
        if message.is_some() {
            return message;
        }
    }
    let text: String = String::from_utf8_lossy(body).trim().chars().take(300).collect();
    (!text.is_empty()).then_some(text)
}
