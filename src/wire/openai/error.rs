//! OpenAI's error JSON: `{"error":{"message","type","code","param"}}`.

use serde::{Deserialize, Serialize};

/// An error answer's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong, in OpenAI's members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A sentence for people.
    pub message: String,
    /// The class, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A stable name for programs; null when there is none.
    pub code: Option<String>,
    /// The request member or header at fault; null when there is none.
    pub param: Option<String>,
}

impl ErrorBody {
    /// Makes a body without `param`.
    #[must_use]
    pub fn new(kind: &str, code: &str, message: impl Into<String>) -> Self {
        Self {
            error: ErrorDetail {
                message: message.into(),
                kind: kind.to_owned(),
                code: Some(code.to_owned()),
                param: None,
            },
        }
    }

    /// Names the member or header at fault.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.error.param = Some(param.into());
        self
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_openais_members() {
        let body = ErrorBody::new("invalid_request_error", "bad", "no").with_param("model");
        assert_eq!(
            body.to_json(),
            r#"{"error":{"message":"no","type":"invalid_request_error","code":"bad","param":"model"}}"#
        );
    }
}
