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
    #[serde(rename = "type", default)]
    pub kind: String,
    /// What programs tell the error by; null when there is nothing.
    #[serde(default)]
    pub code: Option<ErrorCode>,
    /// The request member or header at fault; null when there is none.
    #[serde(default)]
    pub param: Option<String>,
}

/// What programs tell an error by: OpenAI writes a name, vLLM 0.32 the HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ErrorCode {
    /// A number.
    Number(i64),
    /// A stable name.
    Name(String),
}

impl ErrorCode {
    /// Returns the HTTP error status that the code is, written as a number or as text.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        let number = match self {
            Self::Number(number) => *number,
            Self::Name(name) => name.parse().ok()?,
        };
        u16::try_from(number).ok().filter(|status| (400..600).contains(status))
    }
}

impl ErrorBody {
    /// Makes a body without `param`.
    #[must_use]
    pub fn new(kind: &str, code: &str, message: impl Into<String>) -> Self {
        Self {
            error: ErrorDetail {
                message: message.into(),
                kind: kind.to_owned(),
                code: Some(ErrorCode::Name(code.to_owned())),
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

    #[test]
    fn a_code_is_a_number_or_a_name() {
        for (code, status) in [
            ("400", Some(400)),
            ("\"503\"", Some(503)),
            ("\"model_not_found\"", None),
            ("200", None),
            ("-1", None),
        ] {
            let text = format!(r#"{{"error":{{"message":"no","type":"BadRequestError","code":{code}}}}}"#);
            let body: ErrorBody = serde_json::from_str(&text).unwrap();
            assert_eq!(body.error.code.unwrap().status(), status, "{code}");
        }
    }
}
