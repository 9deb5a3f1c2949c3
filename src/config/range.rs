//! Ranges that the types of numbers, names and addresses cannot hold.

use http::Uri;

use super::{ConfigError, Loaded};
use crate::{domain::Price, telemetry::without_secrets};

/// Checks the values of one section; keys are relative to it.
pub(super) struct Ranges<'a> {
    pub(super) loaded: &'a Loaded,
    /// The section's dotted key.
    pub(super) key: &'a str,
}

impl Ranges<'_> {
    pub(super) fn positive(&self, key: &str, value: Option<f64>) -> Result<(), ConfigError> {
        match value {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                Err(self.refuse(key, &value.to_string(), "a finite number above 0"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn not_negative(&self, key: &str, value: f64) -> Result<(), ConfigError> {
        if value.is_finite() && value >= 0.0 {
            return Ok(());
        }
        Err(self.refuse(key, &value.to_string(), "a finite number, 0 or more"))
    }

    pub(super) fn share(&self, key: &str, value: Option<f64>) -> Result<(), ConfigError> {
        match value {
            Some(value) if !(0.0..=1.0).contains(&value) => {
                Err(self.refuse(key, &value.to_string(), "between 0 and 1"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn price(&self, key: &str, price: &Price) -> Result<(), ConfigError> {
        self.not_negative(&format!("{key}.input_usd_per_mtok"), price.input_usd_per_mtok)?;
        self.not_negative(&format!("{key}.output_usd_per_mtok"), price.output_usd_per_mtok)?;
        let cached = price.cached_input_usd_per_mtok.unwrap_or(0.0);
        self.not_negative(&format!("{key}.cached_input_usd_per_mtok"), cached)
    }

    /// Names end up in headers, labels and file names.
    pub(super) fn name(&self, key: &str, name: &str) -> Result<(), ConfigError> {
        if !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic()) {
            return Ok(());
        }
        Err(self.refuse(key, &format!("{name:?}"), "visible ASCII without spaces"))
    }

    pub(super) fn address(&self, key: &str, address: &str) -> Result<(), ConfigError> {
        let refuse = |expected| Err(self.refuse(key, &without_secrets(address), expected));
        let usable = |uri: &Uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some()
                && uri.query().is_none()
        };
        let Some(uri) = address.parse::<Uri>().ok().filter(usable) else {
            return refuse("an address such as http://10.0.0.7:8000");
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return refuse("an address without a login; `upstream.authorization` says what instances see");
        }
        if uri.path().trim_end_matches('/').ends_with("/v1") {
            return refuse("an address without /v1, which the paths of requests bring along");
        }
        Ok(())
    }

    fn refuse(&self, key: &str, value: &str, expected: &'static str) -> ConfigError {
        self.loaded.out_of_range(&format!("{}.{key}", self.key), value, expected)
    }
}
