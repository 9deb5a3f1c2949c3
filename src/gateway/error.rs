//! What a client is told when it gets no answer. The only place that knows HTTP status codes.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use super::fault::{Fault, Limit};
use crate::{
    domain::{Candidate, Ineligible},
    router::RouteError,
    wire::openai::{ErrorBody, RequestError},
};

/// The header that says which rule refused a request.
pub(super) const DROPPED_REASON: &str = "x-bear-dropped-reason";

/// Why a client gets no answer from a model.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The body is malformed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A header is malformed.
    #[error("header `{header}` must be {expected}, got `{got}`")]
    Header { header: &'static str, expected: &'static str, got: String },
    /// The body is over the limit.
    #[error("the body is larger than {limit_mib} MiB")]
    TooLarge { limit_mib: u32 },
    /// The client's body broke off.
    #[error("the request body could not be read: {why}")]
    Unreadable {
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The client's body did not come in time.
    #[error("the request body did not come within the {limit} time-out")]
    SlowBody { limit: Limit },
    /// The named model is not in the pool.
    #[error("model `{model}` is not known; known are {}", known.join(", "))]
    UnknownModel { model: String, known: Vec<String> },
    /// A path that cannot choose a model was asked to.
    #[error(
        "{path} needs a concrete model in `model`; `{model}` is chosen only for /v1/chat/completions and /v1/completions"
    )]
    NeedsModel { model: String, path: String },
    /// No model may serve it.
    #[error("no model of the pool may serve this request: {}", reasons(rows))]
    NoneEligible { rows: Vec<Candidate> },
    /// No instance is up.
    #[error("no usable instance: {}", reasons(rows))]
    NoneUsable { rows: Vec<Candidate> },
    /// No instance is up, and no request was at hand.
    #[error("no usable instance")]
    NotReady,
    /// An instance could not be reached or broke off before the first byte.
    #[error("instance `{instance}` failed before its first byte: {fault}")]
    Upstream { instance: String, fault: Fault },
    /// An instance's stream began with an error that names no status.
    #[error("instance `{instance}` reported an error{}", detail(message))]
    UpstreamError { instance: String, message: Option<String> },
    /// An instance answered with a failure of its own.
    #[error("instance `{instance}` answered {status}{}", detail(message))]
    UpstreamStatus {
        instance: String,
        status: StatusCode,
        message: Option<String>,
        /// Its own body, where that has OpenAI's shape; a 4xx passes it on.
        own: Option<Bytes>,
        retry_after: Option<HeaderValue>,
    },
    /// A time-out ran out before the first byte.
    #[error("instance `{instance}` sent nothing within the {limit} time-out")]
    TimedOut { instance: String, limit: Limit },
    /// No such path.
    #[error("no such path: {path}")]
    NoSuchPath { path: String },
    /// The path takes another method.
    #[error("{path} does not take {method}")]
    Method { path: String, method: String },
    /// Something of ours broke.
    #[error("{why}")]
    Internal { why: &'static str },
}

impl From<RouteError> for Refusal {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::NoneEligible(rows) => Self::NoneEligible { rows },
            RouteError::NoneUsable(rows) => Self::NoneUsable { rows },
        }
    }
}

/// Returns whether an instance's answer is one to pass on.
pub(super) fn is_answer(status: StatusCode) -> bool {
    status.is_success()
}

/// Returns the class of a status in metrics.
pub(super) fn status_class(status: StatusCode) -> &'static str {
    match status {
        status if status.is_server_error() => "5xx",
        status if status.is_client_error() => "4xx",
        _ => "2xx",
    }
}

/// What a failed attempt says of its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is at fault.
    Failed,
    /// It works: the fault is the request's.
    Answered,
    /// Nothing.
    Unknown,
}

/// Judges an instance by the status in an error event of its own, where there is one.
pub(super) fn verdict_of_event(status: Option<u16>) -> Verdict {
    match status {
        Some(500..) => Verdict::Failed,
        Some(_) => Verdict::Answered,
        None => Verdict::Unknown,
    }
}

impl Refusal {
    /// Makes the refusal that an instance's error answer amounts to.
    pub(super) fn of_answer(
        instance: String,
        status: StatusCode,
        body: Bytes,
        retry_after: Option<HeaderValue>,
    ) -> Self {
        let message = message_of(&body);
        Self::UpstreamStatus { instance, status, message, own: own_error(body), retry_after }
    }

    /// Makes the refusal that an error event amounts to where an answer should begin.
    pub(super) fn of_event(instance: String, status: Option<u16>, data: String) -> Self {
        match status.and_then(|status| StatusCode::from_u16(status).ok()) {
            Some(status) => Self::of_answer(instance, status, data.into(), None),
            None => Self::UpstreamError { instance, message: message_of(data.as_bytes()) },
        }
    }

    /// Returns what the failed attempt says of its instance: connect errors, time-outs, breaks and 5xx
    /// count against it.
    pub(super) fn verdict(&self) -> Verdict {
        let blamed = match self {
            Self::Upstream { fault, .. } => fault.blames_instance(),
            Self::TimedOut { limit, .. } => limit.blames_instance(),
            Self::UpstreamStatus { status, .. } if status.is_server_error() => true,
            Self::UpstreamStatus { .. } => return Verdict::Answered,
            _ => false,
        };
        if blamed { Verdict::Failed } else { Verdict::Unknown }
    }

    /// Returns whether another instance may do better: not for a 4xx other than 429, nor where the
    /// request's own time is up.
    pub(super) fn may_pass_elsewhere(&self) -> bool {
        match self {
            Self::Upstream { .. } | Self::UpstreamError { .. } => true,
            Self::TimedOut { limit, .. } => limit.blames_instance(),
            Self::UpstreamStatus { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            _ => false,
        }
    }

    /// Returns the status, OpenAI's error type and code, and the rule for [`DROPPED_REASON`].
    fn class(&self) -> (StatusCode, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        const UPSTREAM: &str = "upstream_error";
        match self {
            Self::Request(_) => (StatusCode::BAD_REQUEST, INVALID, "invalid_request"),
            Self::Header { .. } => (StatusCode::BAD_REQUEST, INVALID, "invalid_header"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, "body_too_large"),
            Self::Unreadable { .. } => (StatusCode::BAD_REQUEST, INVALID, "body_unreadable"),
            Self::SlowBody { .. } => (StatusCode::REQUEST_TIMEOUT, "timeout_error", "body_timeout"),
            Self::NeedsModel { .. } => (StatusCode::BAD_REQUEST, INVALID, "concrete_model_needed"),
            Self::UnknownModel { .. } => (StatusCode::NOT_FOUND, INVALID, "model_not_found"),
            Self::NoneEligible { .. } => (StatusCode::BAD_REQUEST, INVALID, "no_eligible_model"),
            Self::NoneUsable { .. } | Self::NotReady => {
                (StatusCode::SERVICE_UNAVAILABLE, UPSTREAM, "no_usable_instance")
            }
            Self::Upstream { .. } => (StatusCode::BAD_GATEWAY, UPSTREAM, "upstream_unreachable"),
            Self::UpstreamStatus { status, .. } if *status == StatusCode::TOO_MANY_REQUESTS => {
                (*status, "rate_limit_error", "upstream_busy")
            }
            Self::UpstreamStatus { status, .. } if status.is_client_error() => {
                (*status, INVALID, "upstream_refused")
            }
            Self::UpstreamStatus { .. } | Self::UpstreamError { .. } => {
                (StatusCode::BAD_GATEWAY, UPSTREAM, "upstream_failed")
            }
            Self::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, "timeout_error", "upstream_timeout"),
            Self::NoSuchPath { .. } => (StatusCode::NOT_FOUND, INVALID, "no_such_path"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, INVALID, "method_not_allowed"),
            Self::Internal { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal"),
        }
    }

    /// Returns the rule's name.
    pub(super) fn rule(&self) -> &'static str {
        self.class().2
    }

    /// Returns the status to send.
    pub(super) fn status(&self) -> StatusCode {
        self.class().0
    }

    fn param(&self) -> Option<String> {
        match self {
            Self::Request(error) => error.param().map(str::to_owned),
            Self::Header { header, .. } => Some((*header).to_owned()),
            Self::UnknownModel { .. } | Self::NeedsModel { .. } => Some(String::from("model")),
            _ => None,
        }
    }

    /// Returns OpenAI's error body.
    pub(super) fn body(&self) -> ErrorBody {
        let (_, kind, code) = self.class();
        let mut body = ErrorBody::new(kind, code, self.to_string());
        body.error.param = self.param();
        body
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let own = match &self {
            Self::UpstreamStatus { own: Some(own), status, .. } if status.is_client_error() => {
                Some(own.clone())
            }
            _ => None,
        };
        let body = own.map_or_else(|| Body::from(self.body().to_json()), Body::from);
        let mut response = Response::new(body);
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(DROPPED_REASON, HeaderValue::from_static(self.rule()));
        match self {
            Self::UpstreamStatus { retry_after: Some(after), .. } => {
                headers.insert(header::RETRY_AFTER, after);
            }
            Self::NoneUsable { .. } | Self::NotReady => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// The data of the SSE `error` event that ends a broken stream.
pub(super) fn broken_stream(instance: &str, fault: &Fault) -> String {
    let (kind, code) = match fault {
        Fault::TimedOut(_) => ("timeout_error", "upstream_timeout"),
        _ => ("upstream_error", "upstream_broke_off"),
    };
    ErrorBody::new(kind, code, format!("instance `{instance}` broke off: {fault}")).to_json()
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

fn detail(message: &Option<String>) -> String {
    message.as_ref().map(|message| format!(": {message}")).unwrap_or_default()
}

/// Says for each model why it may not serve, once a model and reason.
fn reasons(rows: &[Candidate]) -> String {
    let mut said: Vec<String> = Vec::new();
    for row in rows {
        let Some(why) = &row.ineligible else { continue };
        let subject = match why {
            Ineligible::Unusable { .. } => format!("{} ({})", row.instance, row.model),
            Ineligible::OtherModel => continue,
            _ => row.model.clone(),
        };
        let line = format!("{subject}: {}", why_ineligible(why));
        if !said.contains(&line) {
            said.push(line);
        }
    }
    if said.is_empty() { String::from("the model has no instance") } else { said.join("; ") }
}

/// Says in words why a row is not eligible.
pub(crate) fn why_ineligible(why: &Ineligible) -> String {
    match why {
        Ineligible::ContextLength { needed_tokens, max_model_len_tokens } => {
            format!("needs {needed_tokens} tokens, takes {max_model_len_tokens}")
        }
        Ineligible::Modality { modality } => format!("takes no {modality} input"),
        Ineligible::Tools => String::from("takes no tools"),
        Ineligible::StructuredOutput => String::from("gives no structured output"),
        Ineligible::MinAccuracy { accuracy, min_accuracy } => {
            format!("predicted accuracy {accuracy:.3} is below {min_accuracy}")
        }
        Ineligible::MaxCost { cost_usd, max_cost_usd } => {
            format!("predicted cost {cost_usd:.6} USD is over {max_cost_usd}")
        }
        Ineligible::UnknownPrediction { bound } => format!("nothing is predicted for the bound {bound}"),
        Ineligible::OtherModel => String::from("another model was named"),
        Ineligible::Unusable { why } => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::openai::ErrorCode;

    #[test]
    fn refusals_are_openais_errors() {
        let refusal =
            Refusal::Header { header: "x-slo-ttft-ms", expected: "a positive number", got: "soon".into() };
        let body = refusal.body().error;
        assert_eq!(body.param.as_deref(), Some("x-slo-ttft-ms"));
        assert_eq!(body.code, Some(ErrorCode::Name("invalid_header".into())));
        assert_eq!(body.message, "header `x-slo-ttft-ms` must be a positive number, got `soon`");
        let response = refusal.into_response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[DROPPED_REASON], "invalid_header");
    }

    #[test]
    fn upstream_failures_keep_their_class() {
        let refusal = |status: u16| Refusal::UpstreamStatus {
            instance: "a".into(),
            status: StatusCode::from_u16(status).unwrap(),
            message: Some("no".into()),
            own: None,
            retry_after: Some(HeaderValue::from_static("7")),
        };
        assert_eq!(refusal(503).status(), 502);
        assert_eq!(refusal(429).status(), 429);
        assert_eq!(refusal(404).status(), 404);
        assert_eq!(refusal(429).into_response().headers()[header::RETRY_AFTER], "7");
        assert!(refusal(503).to_string().ends_with("503 Service Unavailable: no"));
    }

    #[test]
    fn only_an_instances_own_faults_count_against_it() {
        let instance = || String::from("a");
        let status = |status: u16| {
            Refusal::of_answer(instance(), StatusCode::from_u16(status).unwrap(), Bytes::new(), None)
        };
        let event = |status| Refusal::of_event(instance(), status, String::new());
        let time_out = |limit| Refusal::TimedOut { instance: instance(), limit };
        for (refusal, verdict, elsewhere) in [
            (status(400), Verdict::Answered, false),
            (status(429), Verdict::Answered, true),
            (status(500), Verdict::Failed, true),
            (status(302), Verdict::Answered, false),
            (event(Some(400)), Verdict::Answered, false),
            (event(Some(503)), Verdict::Failed, true),
            (event(None), Verdict::Unknown, true),
            (time_out(Limit::FirstByte), Verdict::Failed, true),
            (time_out(Limit::Total), Verdict::Unknown, false),
            (Refusal::Upstream { instance: instance(), fault: Fault::Empty }, Verdict::Failed, true),
            (Refusal::Internal { why: "x" }, Verdict::Unknown, false),
        ] {
            assert_eq!((refusal.verdict(), refusal.may_pass_elsewhere()), (verdict, elsewhere), "{refusal}");
        }
    }
}
