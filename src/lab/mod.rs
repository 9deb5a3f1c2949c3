//! The lab: the router that serves, over a simulated fleet, in virtual time. It compares routers on a team's
//! own pool and traffic before any of it is real.
//!
//! A [`Scenario`] names a pool, a [`workload`], [`arrivals`] and the routers to compare; [`fleet::run`] plays one
//! router through it and yields one [`RunLine`]. Everything is a function of the scenario and its seed.

pub mod arrivals;
mod check;
pub mod figures;
mod fingerprint;
pub mod fleet;
pub mod grid;
mod item;
mod line;
mod measure;
mod options;
mod scenario;
mod trace;
pub mod tune;
pub mod whatif;
pub mod workload;

pub use fingerprint::Fingerprints;
pub use item::{Answer, FollowUp, Item};
pub use line::{Interval, Metrics, Quantiles, RequestRecord, RunKey, RunLine, Setting, Share};
pub use options::data_files;
pub use scenario::{
    Failure, Misfit, Named, PoolModel, PredictorChoice, RouterChoice, Scenario, SnapshotRule, Sweep,
    TargetRule,
};

use crate::{domain::InstanceId, engine::EngineError, policy::PolicyError, truth::TruthError};

/// Why a scenario cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The file is not a scenario.
    #[error("{place} is not a scenario: {source}; config/scenarios/ holds examples")]
    Parse {
        /// Its name or path.
        place: String,
        /// Where and why.
        source: Box<serde_saphyr::Error>,
    },
    /// A value breaks a rule.
    #[error("{place}: `{key}` {rule}")]
    Invalid {
        /// The scenario.
        place: String,
        /// The key.
        key: String,
        /// The rule it breaks.
        rule: String,
    },
    /// No variant is registered under a name.
    #[error("{kind} `{name}` is not known; registered: {known}")]
    Unknown {
        /// What it would be: `workload`, `arrivals`, …
        kind: &'static str,
        /// The name.
        name: String,
        /// The registered names.
        known: String,
    },
    /// The options of a named variant do not fit.
    #[error("options of {kind} `{name}`: {source}")]
    Options {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// A data file that the scenario names was not handed in, or is not what it should be.
    #[error("data file `{file}`: {what}")]
    Data {
        /// Its name.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A profile cannot be used.
    #[error(transparent)]
    Truth(#[from] TruthError),
    /// A policy cannot be made.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// An engine cannot run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An engine refused a request that the router had sent to it.
    #[error("instance `{instance}` refused request {request}")]
    Refused {
        /// The instance.
        instance: InstanceId,
        /// The request.
        request: String,
    },
}
