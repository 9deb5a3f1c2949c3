//! The configuration: composes each room's own section, loads it from defaults, file, environment and
//! flags, and checks it whole before anything is built from it.
//!
//! Two stages: [`load`] gives the raw [`Config`] with the place of every value, [`Loaded::check`] turns
//! it into [`Checked`] values or says what is wrong and where.

mod assemble;
mod bundle;
mod check;
mod error;
mod load;
mod place;
mod range;
mod schema;
mod show;
mod typical;
mod watch;

pub use assemble::{AssembleError, Running, assemble};
pub use bundle::{BundleFileError, read_bundle};
pub use check::{Checked, Warning};
pub use error::ConfigError;
pub use load::{Flag, Loaded, Sources, load, parse};
pub use place::Place;
pub use schema::{Config, InstanceConfig, LpsConfig, ModelConfig, PredictorsConfig, PriorConfig};
pub use show::{digest, show};
pub use typical::{ModelUtility, TYPICAL, Typical, outshone, utilities};
