//! Refusals of a simulated engine: vLLM's shape, in which `code` repeats the HTTP status as a number.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::owner::Gone;
use crate::wire::openai::RequestError;

/// A refused or broken request, in the shape of vLLM's `ErrorResponse` (release 0.32).
#[derive(Debug, Serialize)]
pub(super) struct ApiError {
    error: Box<Detail>,
}

#[derive(Debug, Serialize)]
struct Detail {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<String>,
    code: u16,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self { error: Box::new(Detail { message, kind, param: None, code: status.as_u16() }) }
    }

    /// Names the member at fault.
    #[must_use]
    pub(super) fn with_param(mut self, param: &str) -> Self {
        self.error.param = Some(param.to_string());
        self
    }

    /// Makes a 400.
    #[must_use]
    pub(super) fn bad_request(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
    }

    /// Makes a 400 for a member's value.
    #[must_use]
    pub(super) fn bad_value(param: &str, message: &str) -> Self {
        Self::bad_request(message.to_string()).with_param(param)
    }

    /// Makes a 404.
    #[must_use]
    pub(super) fn not_found(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", message)
    }

    /// Makes the 400 for a prompt that leaves no room for an answer.
    #[must_use]
    pub(super) fn prompt_too_long(prompt_tokens: u32, max_model_len: u32) -> Self {
        let message = format!(
            "The prompt has {prompt_tokens} tokens; with its answer it must fit in the context length of \
             {max_model_len} tokens. Shorten the input."
        );
        Self::bad_request(message).with_param("input_tokens")
    }

    /// Makes the 400 for a prompt that leaves less room than `max_tokens` asks for.
    #[must_use]
    pub(super) fn answer_too_long(prompt_tokens: u32, max_tokens: u32, max_model_len: u32) -> Self {
        let message = format!(
            "The prompt's {prompt_tokens} tokens and `max_tokens` = {max_tokens} add up to more than the context \
             length of {max_model_len} tokens. Shorten the input or lower `max_tokens`."
        );
        Self::bad_request(message).with_param("max_tokens")
    }

    /// Returns the JSON text.
    #[must_use]
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the member at fault.
    #[cfg(test)]
    pub(super) fn param(&self) -> Option<&str> {
        self.error.param.as_deref()
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let refused = Self::bad_request(error.to_string());
        match error.param() {
            Some(param) => refused.with_param(param),
            None => refused,
        }
    }
}

impl From<Gone> for ApiError {
    fn from(gone: Gone) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", gone.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_status_as_a_number() {
        let text = ApiError::bad_value("n", "too many").to_json();
        let expected = r#"{"error":{"message":"too many","type":"BadRequestError","param":"n","code":400}}"#;
        assert_eq!(text, expected);
        assert_eq!(ApiError::from(Gone).into_response().status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
