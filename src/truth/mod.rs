//! What simulated engines really take: batch times, delays and answer lengths, and their steps in virtual
//! time. The lab and the simulated server run by it; the fit an estimator starts from is made against it.
//!
//! To add an engine, add its profile to `config/engines/` and a line to [`PROFILES`].

mod batch_time;
pub mod fit;
pub mod lengths;
mod profile;
pub mod stepping;

pub use batch_time::{BatchTimeTruth, Delay, Work, noise_factor};
pub use profile::{PROFILES, Profile, ProfileEntry, ProfileFit};

use crate::{calibrate::CalibrateError, engine::EngineError};

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// No profile has this name.
    #[error("no profile is called `{name}`; known ones are {known}")]
    UnknownProfile {
        /// The asked name.
        name: String,
        /// The known names.
        known: String,
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
