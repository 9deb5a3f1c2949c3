//! A simulated serving instance over HTTP: the real batching rules of `engine/` under a fixed truth of
//! times and answer lengths. For demos, tests and trying a router without a GPU.
//!
//! To add an engine, add its profile to `config/engines/` and a line to [`profile::PROFILES`].

use std::path::PathBuf;

use crate::{calibrate::CalibrateError, engine::EngineError};

pub mod answer;
mod answering;
mod connections;
mod error;
pub mod fit;
mod format;
mod http;
pub mod lengths;
mod metrics;
mod owner;
mod plan;
pub mod profile;
mod server;
mod serving;
pub mod stepping;
pub mod tokens;
pub mod truth;

pub use profile::{PROFILES, Profile, ProfileFit};
pub use serving::{Handle, Options, spawn};

/// What can go wrong with a simulated engine.
#[derive(Debug, thiserror::Error)]
pub enum SimEngineError {
    /// No profile has this name.
    #[error("no profile is called `{name}`; known ones are {known}, and a path to a YAML file works too")]
    UnknownProfile {
        /// The asked name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A profile file cannot be read.
    #[error("cannot read the profile {}", path.display())]
    ReadProfile {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A profile is not what it should be.
    #[error("{place} is not a profile: {source}; config/engines/ holds examples")]
    ParseProfile {
        /// Its name or path.
        place: String,
        /// Where and why.
        source: Box<serde_saphyr::Error>,
    },
    /// A value of a profile breaks a rule.
    #[error("{place}: `{key}` {rule}")]
    InvalidProfile {
        /// The profile's name or path.
        place: String,
        /// The key.
        key: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The profile's scheduler cannot run.
    #[error("the profile's engine cannot run: {0}")]
    Engine(#[from] EngineError),
    /// Time must go forward.
    #[error("time scale {value} must be a positive number: simulated seconds a real second, such as 1 or 10")]
    TimeScale {
        /// The asked scale.
        value: f64,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another with --port, or --port 0 for any free one")]
    Bind {
        /// The asked address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The recorded batches cannot be fitted.
    #[error("cannot fit the profile's batches: {0}")]
    Fit(#[from] CalibrateError),
    /// A fit cannot be written.
    #[error("cannot write the fit as YAML: {source}")]
    WriteFit {
        /// Why.
        source: Box<serde_saphyr::ser_error::Error>,
    },
}
