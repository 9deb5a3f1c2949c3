//! Advice: the λ, δ and policy options that serve a stated goal best, found by simulation.
//!
//! [`search`] runs a coarse grid in short runs, gives the better points longer runs and more seeds, then
//! narrows each knob about the best one. It is a function of the scenario, the plan and the simulation. Routers
//! weigh with the tried λ; utilities stay valued at the scenario's, so that points can be compared.

mod goal;
mod knob;
mod search;
#[cfg(test)]
mod tests;
mod trial;

use serde::Serialize;

pub use goal::{Goal, Objective, metric, metric_names};
pub use knob::{Knob, Range, turned};
pub use search::{Advice, search};
pub use trial::{Effort, Trial};

use super::{LabError, Metrics, Scenario};

/// Plays a scenario that has one router and no axes, under a seed.
pub type Simulate<'a> = dyn FnMut(&Scenario, u64) -> Result<Metrics, LabError> + 'a;

/// What to search and for what.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The router to tune, by its place in the scenario.
    pub router: usize,
    /// What is to be best among the points that meet every goal.
    pub objective: Objective,
    /// What a point must meet, means over seeds.
    pub goals: Vec<Goal>,
    /// What may be turned, from where to where.
    pub ranges: Vec<Range>,
    /// Seeds of the longest runs; shorter ones take the first.
    pub seeds: Vec<u64>,
}
