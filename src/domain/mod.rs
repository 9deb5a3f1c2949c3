//! The vocabulary every room speaks: queries, models, instances and what is known of them.
//!
//! Plain data without behaviour beyond unit arithmetic. Everything here is pure: time, randomness
//! and models come from outside.

mod calibration;
mod decision;
mod estimate;
mod instance;
mod model;
mod nearest;
mod outcome;
mod prediction;
mod query;
pub mod snapshot;
mod time;

pub use calibration::{BatchTimeCoefficients, Overhead};
pub use decision::{Candidate, Decision, Ineligible, Leg, PROMPT_BOUND, Placement, Reason, Role};
pub use estimate::{Estimate, EstimateSource, Horizon, NoEstimate, Ttft};
pub use instance::{Basis, BasisSource, Dispatched, InstanceId, InstanceSpec, InstanceView, Load};
pub use model::{Capabilities, Modalities, ModelId, ModelIndex, ModelSpec, Price};
pub(crate) use nearest::suggestion;
pub use outcome::{Ending, Outcome};
pub use prediction::Prediction;
pub use query::{
    Bounds, CountSource, Endpoint, Named, Needs, PREFIX_BLOCK_TOKENS, PromptCount, Query, QueryLoad, Tradeoff,
};
pub use snapshot::Snapshot;
pub use time::{Now, Timestamp};
