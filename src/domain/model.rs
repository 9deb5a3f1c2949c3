//! A served model: its price, limits and abilities.

use std::{borrow::Borrow, collections::BTreeSet, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name a model is served under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelId(Arc<str>);

impl ModelId {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ModelId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ModelId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A model's position in its pool's model list; valid for that pool only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelIndex(pub usize);

/// Prices in USD per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens, USD per million.
    pub input_usd_per_mtok: f64,
    /// Output tokens, USD per million.
    pub output_usd_per_mtok: f64,
    /// Prompt tokens served from the prefix cache, USD per million; absent: as other prompt tokens.
    #[serde(default)]
    pub cached_input_usd_per_mtok: Option<f64>,
}

/// The kinds of input a request carries or a model accepts, lower case (`text`, `image`, `audio`, …).
pub type Modalities = BTreeSet<String>;

/// What a model can do beyond plain text chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capabilities {
    /// Input kinds it accepts.
    pub modalities: Modalities,
    /// Whether it accepts `tools`.
    pub tools: bool,
    /// Whether it accepts a `response_format` other than text.
    pub structured_output: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { modalities: [String::from("text")].into(), tools: true, structured_output: true }
    }
}

/// One model of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its served name.
    pub id: ModelId,
    /// Its parameters, billions.
    pub parameters_b: f64,
    /// Its context length, tokens.
    pub max_model_len_tokens: u32,
    /// Its price; an instance may override it.
    pub price: Price,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Mean accuracy in `[0,1]` used where no bundle knows the model; absent: unknown.
    pub prior_accuracy: Option<f64>,
    /// Mean output tokens used where no bundle knows the model; absent: unknown.
    pub prior_output_tokens: Option<f64>,
}
