//! Measured numbers of one instance that estimates rest on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The coefficients of the batch time (eq. 12 and the optional fifth term), in seconds.
///
/// `T = b0 + b1·Σk + b2·Σ_decode c + b3·Σ_prefill (k·c + k(k+1)/2) + b4·(emitting members)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchTimeCoefficients {
    /// Fixed time of any batch, seconds.
    pub b0_s: f64,
    /// Time a scheduled token, seconds.
    pub b1_s: f64,
    /// Time a context token of a decoding member, seconds.
    pub b2_s: f64,
    /// Time a (query, key) pair of a prefilling member, seconds.
    pub b3_s: f64,
    /// Time a member that emits a token, seconds; 0 in the paper's four-term form.
    #[serde(default)]
    pub b4_s: f64,
}

/// Time a request spends outside the engine's batches, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overhead {
    /// From the router's send to the engine's queue, seconds.
    pub ingress_s: f64,
    /// From the end of the emitting batch to the router's receipt, seconds.
    pub egress_s: f64,
}
