//! What a client is told when it gets no answer. The only place that knows HTTP status codes.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

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
    Unreadable { why: String },
    /// The named model is not in the pool.
    #[error("model `{model}` is not known; known are {}", known.join(", "))]
    UnknownModel { model: String, known: Vec<String> },
    /// No model may serve it.
    #[error("no model of the pool may serve this request: {}", reasons(rows))]
    NoneEligible { rows: Vec<Candidate> },
    /// No instance is up.
    #[error("no usable instance: {}", reasons(rows))]
    NoneUsable { rows: Vec<Candidate> },
    /// An instance could not be reached or broke off before the first byte.
    #[error("instance `{instance}` failed before its first byte: {why}")]
    Upstream { instance: String, why: String },
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
    TimedOut { instance: String, limit: &'static str },
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

impl Refusal {
    /// Returns the status, OpenAI's error type and code, and the rule for [`DROPPED_REASON`].
    fn class(&self) -> (StatusCode, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        const UPSTREAM: &str = "upstream_error";
        match self {
            Self::Request(_) => (StatusCode::BAD_REQUEST, INVALID, "invalid_request"),
            Self::Header { .. } => (StatusCode::BAD_REQUEST, INVALID, "invalid_header"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, "body_too_large"),
            Self::Unreadable { .. } => (StatusCode::BAD_REQUEST, INVALID, "body_unreadable"),
            Self::UnknownModel { .. } => (StatusCode::NOT_FOUND, INVALID, "model_not_found"),
            Self::NoneEligible { .. } => (StatusCode::BAD_REQUEST, INVALID, "no_eligible_model"),
            Self::NoneUsable { .. } => (StatusCode::SERVICE_UNAVAILABLE, UPSTREAM, "no_usable_instance"),
            Self::Upstream { .. } => (StatusCode::BAD_GATEWAY, UPSTREAM, "upstream_unreachable"),
            Self::UpstreamStatus { status, .. } if *status == StatusCode::TOO_MANY_REQUESTS => {
                (*status, "rate_limit_error", "upstream_busy")
            }
            Self::UpstreamStatus { status, .. } if status.is_client_error() => {
                (*status, INVALID, "upstream_refused")
            }
            Self::UpstreamStatus { .. } => (StatusCode::BAD_GATEWAY, UPSTREAM, "upstream_failed"),
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
            Self::UnknownModel { .. } => Some(String::from("model")),
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
            Self::NoneUsable { .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// The data of the SSE `error` event that ends a broken stream.
pub(super) fn broken_stream(why: &str, timed_out: bool) -> String {
    let (kind, code) = if timed_out {
        ("timeout_error", "upstream_timeout")
    } else {
        ("upstream_error", "upstream_broke_off")
    };
    ErrorBody::new(kind, code, why).to_json()
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

    #[test]
    fn refusals_are_openais_errors() {
        let refusal =
            Refusal::Header { header: "x-slo-ttft-ms", expected: "a positive number", got: "soon".into() };
        let body = refusal.body().error;
        assert_eq!(
            (body.param.as_deref(), body.code.as_deref()),
            (Some("x-slo-ttft-ms"), Some("invalid_header"))
        );
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
}
