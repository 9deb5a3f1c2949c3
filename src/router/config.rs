//! The `routing` section of the configuration.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{domain::Tradeoff, policy::PolicyConfig};

/// Which policy decides, with which weights, and under which names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    /// The policy and its options.
    pub policy: PolicyConfig,
    /// λ of eq. 4: utility given up per USD.
    pub lambda_per_usd: f64,
    /// δ of eq. 7: utility given up per second of TTFT.
    pub delta_per_s: f64,
    /// TTFT target of requests that name none, milliseconds; null: none.
    pub default_ttft_target_ms: Option<f64>,
    /// The model name that leaves the choice to the router.
    pub virtual_model: String,
    /// Other names of models.
    pub aliases: BTreeMap<String, String>,
    /// Whether requests may set λ and δ themselves.
    pub allow_request_tradeoff: bool,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            policy: PolicyConfig::default(),
            lambda_per_usd: 500.0,
            delta_per_s: 0.0,
            default_ttft_target_ms: None,
            virtual_model: String::from("auto"),
            aliases: BTreeMap::new(),
            allow_request_tradeoff: false,
        }
    }
}

impl RouterConfig {
    /// Returns the configured λ and δ.
    #[must_use]
    pub const fn tradeoff(&self) -> Tradeoff {
        Tradeoff { lambda_per_usd: self.lambda_per_usd, delta_per_s: self.delta_per_s }
    }

    /// Returns the default TTFT target.
    #[must_use]
    pub fn default_ttft_target(&self) -> Option<Duration> {
        self.default_ttft_target_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok())
    }

    /// Checks the values that types cannot.
    ///
    /// # Errors
    /// [`RouterConfigError`] names the key and its value.
    pub fn check(&self) -> Result<(), RouterConfigError> {
        let weights = [("lambda_per_usd", self.lambda_per_usd), ("delta_per_s", self.delta_per_s)];
        for (key, value) in weights {
            if !(value.is_finite() && value >= 0.0) {
                return Err(RouterConfigError::Weight { key, value });
            }
        }
        match self.default_ttft_target_ms {
            Some(value) if !(value.is_finite() && value > 0.0) => Err(RouterConfigError::Target { value }),
            _ => Ok(()),
        }
    }
}

/// A value of the `routing` section that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouterConfigError {
    /// A weight is negative or not finite.
    #[error("routing.{key} is {value}; it must be a finite number, 0 or more")]
    Weight {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// The default target is not positive.
    #[error("routing.default_ttft_target_ms is {value}; it must be positive, or null for none")]
    Target {
        /// Its value.
        value: f64,
    },
}
