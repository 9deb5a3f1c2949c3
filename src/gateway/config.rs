//! The gateway's options: where it listens and how it speaks to instances.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GatewayError;

/// The `listen` and `upstream` sections of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Where it listens.
    pub listen: ListenConfig,
    /// How it speaks to instances.
    pub upstream: UpstreamConfig,
}

/// Where the gateway listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// For clients.
    pub address: SocketAddr,
    /// Reserved for operators' pages; null: none. This version listens on `address` only.
    pub admin: Option<SocketAddr>,
    /// Largest request body taken, MiB; a larger one is a 413.
    pub max_body_mib: u32,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 8081))),
            max_body_mib: 32,
        }
    }
}

/// How the gateway speaks to instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// Longest wait for a connection. Milliseconds.
    pub connect_timeout_ms: u64,
    /// Longest wait from sending a streamed request to its first event. Seconds.
    pub first_byte_timeout_s: f64,
    /// Longest silence between two pieces of an answer, or of a request's body. Seconds.
    pub idle_timeout_s: f64,
    /// Longest life of a request, retries included. Seconds.
    pub total_timeout_s: f64,
    /// How long an unused connection is kept; below the engine's own keep-alive (uvicorn's is 5), so
    /// that it is not closed just as it is used. Seconds.
    pub pool_idle_s: f64,
    /// Further attempts on other instances after a failed one.
    pub retries: u32,
    /// Longest wait for an engine's `/tokenize`; after it the prompt is sized by its bytes. Milliseconds.
    pub tokenize_timeout_ms: u64,
    /// What instances see as `authorization`.
    pub authorization: Authorization,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 1000,
            first_byte_timeout_s: 120.0,
            idle_timeout_s: 60.0,
            total_timeout_s: 600.0,
            pool_idle_s: 4.0,
            retries: 1,
            tokenize_timeout_ms: 100,
            authorization: Authorization::Forward,
        }
    }
}

/// What instances see as `authorization`. Secrets come from the environment or a file only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Authorization {
    /// The client's own.
    Forward,
    /// None.
    Drop,
    /// `Bearer` and the value of this environment variable.
    Env(String),
    /// `Bearer` and the content of this file.
    File(PathBuf),
}

/// The `authorization` that goes upstream, its secret read.
#[derive(Clone, Debug)]
pub(super) enum UpstreamAuthorization {
    Forward,
    Drop,
    Fixed(HeaderValue),
}

impl UpstreamAuthorization {
    /// Puts the operator's own secret, where there is one, in place of the header.
    pub(super) fn apply(&self, headers: &mut http::HeaderMap) {
        match self {
            Self::Forward => {}
            Self::Drop => {
                headers.remove(http::header::AUTHORIZATION);
            }
            Self::Fixed(secret) => {
                headers.insert(http::header::AUTHORIZATION, secret.clone());
            }
        }
    }
}

impl Authorization {
    /// Reads the secret.
    pub(super) fn resolve(&self) -> Result<UpstreamAuthorization, GatewayError> {
        let (from, secret) = match self {
            Self::Forward => return Ok(UpstreamAuthorization::Forward),
            Self::Drop => return Ok(UpstreamAuthorization::Drop),
            Self::Env(name) => (format!("the environment variable {name}"), std::env::var(name).ok()),
            Self::File(path) => {
                let tried = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                (tried.display().to_string(), std::fs::read_to_string(path).ok())
            }
        };
        let header = secret.and_then(|secret| {
            let mut header = HeaderValue::from_str(&format!("Bearer {}", secret.trim())).ok()?;
            header.set_sensitive(true);
            Some(header)
        });
        header.map(UpstreamAuthorization::Fixed).ok_or(GatewayError::Secret { from })
    }
}

/// Time-outs as durations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) first_byte: Duration,
    pub(super) idle: Duration,
    pub(super) total: Duration,
    pub(super) tokenize: Duration,
}

impl UpstreamConfig {
    /// Checks the values that types cannot, and that the secret can be read.
    ///
    /// # Errors
    /// [`GatewayError::TimeOut`], [`GatewayError::Secret`].
    pub fn check(&self) -> Result<(), GatewayError> {
        self.limits()?;
        self.pool_idle()?;
        self.authorization.resolve().map(drop)
    }

    /// Turns the time-outs into durations.
    pub(super) fn limits(&self) -> Result<Limits, GatewayError> {
        Ok(Limits {
            first_byte: seconds("upstream.first_byte_timeout_s", self.first_byte_timeout_s)?,
            idle: seconds("upstream.idle_timeout_s", self.idle_timeout_s)?,
            total: seconds("upstream.total_timeout_s", self.total_timeout_s)?,
            tokenize: Duration::from_millis(self.tokenize_timeout_ms),
        })
    }

    /// Returns how long an unused connection is kept.
    pub(super) fn pool_idle(&self) -> Result<Duration, GatewayError> {
        seconds("upstream.pool_idle_s", self.pool_idle_s)
    }
}

fn seconds(key: &'static str, value: f64) -> Result<Duration, GatewayError> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or(GatewayError::TimeOut { key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_reads_as_a_word_or_a_place() {
        let read = |text: &str| serde_json::from_str::<Authorization>(text).unwrap();
        assert_eq!(read("\"forward\""), Authorization::Forward);
        assert_eq!(read(r#"{"env":"KEY"}"#), Authorization::Env("KEY".into()));
        let missing = Authorization::Env("BEAR_NO_SUCH_VARIABLE".into()).resolve().unwrap_err();
        assert!(missing.to_string().contains("BEAR_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn a_secret_file_becomes_a_sensitive_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "s3cret\n").unwrap();
        let Ok(UpstreamAuthorization::Fixed(header)) = Authorization::File(path).resolve() else {
            panic!("a header")
        };
        assert_eq!(header, "Bearer s3cret");
        assert_eq!(format!("{header:?}"), "Sensitive");
    }

    #[test]
    fn time_outs_are_positive() {
        for idle_timeout_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let config = UpstreamConfig { idle_timeout_s, ..UpstreamConfig::default() };
            assert!(config.limits().unwrap_err().to_string().contains("upstream.idle_timeout_s"));
        }
    }
}
