//! A simulated serving instance over HTTP: the real batching rules of `engine/` under a fixed truth of
//! times and answer lengths. For demos, tests and trying a router without a GPU.
//!
//! To add an engine, add its profile to `config/engines/` and a line to [`crate::truth::PROFILES`].

use std::path::PathBuf;

use crate::truth::TruthError;

pub mod answer;
mod answering;
mod connections;
mod error;
mod format;
mod http;
mod metrics;
mod owner;
mod plan;
mod profiles;
mod server;
mod serving;
pub mod tokens;

pub use profiles::load_profile;
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
    /// A profile cannot be used.
    #[error(transparent)]
    Truth(#[from] TruthError),
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
}
