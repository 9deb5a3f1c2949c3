//! A simulated serving instance over HTTP: the real batching rules of `engine/` under a fixed truth of
//! times and answer lengths. For demos, tests and trying a router without a GPU.
//!
//! To add an engine, add its profile to `config/engines/` and a line to [`profile::PROFILES`].

use std::path::PathBuf;

pub mod answer;
pub mod lengths;
pub mod profile;
pub mod tokens;
pub mod truth;

pub use profile::{PROFILES, Profile, ProfileFit};

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
}
