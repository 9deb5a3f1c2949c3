//! Advice: the λ, δ and policy options that serve a stated goal best, found by simulation.
//!
//! [`search`] runs a coarse grid in short runs, gives the better points longer runs and more seeds, narrows each
//! knob about the best one, and judges that on seeds that had no part in choosing it. It is a function of the
//! scenario, the plan and the simulation. Routers weigh with the tried λ; utilities stay valued at the scenario's,
//! so that points can be compared.

mod goal;
mod knob;
mod search;
#[cfg(test)]
mod tests;
mod trial;

use serde::Serialize;

pub use goal::{Goal, Met, Objective, metric, metric_names};
pub use knob::{Knob, Range, turned};
pub use search::search;
pub use trial::{Effort, Trial};

use super::{Interval, LabError, Metrics, Scenario};

/// One simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// A scenario with one router and no axes.
    pub scenario: Scenario,
    /// Its seed.
    pub seed: u64,
}

/// Plays runs, in any order, and returns their metrics in the order of the runs.
pub type Simulate<'a> = dyn FnMut(&[Run]) -> Result<Vec<Metrics>, LabError> + 'a;

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
    /// Seeds of the longest runs; shorter ones take the first. What is found is judged on others.
    pub seeds: Vec<u64>,
}

impl Plan {
    /// Returns it without the ranges of some knobs.
    #[must_use]
    pub fn without(&self, keys: &[String]) -> Self {
        let mut plan = self.clone();
        plan.ranges.retain(|range| !keys.iter().any(|key| key == range.key()));
        plan
    }
}

/// What the search found.
///
/// `found` is the best of many points on the same seeds, and so flatters itself; `judged` is the same point on
/// fresh seeds. `best`, `present` and `gain` are of fresh seeds too.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The keys of the values that trials list.
    pub keys: Vec<String>,
    /// The point to take, on fresh seeds; absent: none meets the goals there.
    pub best: Option<Trial>,
    /// That point, or the one that comes nearest to the goals, as the search saw it.
    pub found: Trial,
    /// The same on fresh seeds.
    pub judged: Trial,
    /// The scenario's own values on fresh seeds; absent: it does not set all of them.
    pub present: Option<Trial>,
    /// Objective of `judged` less that of `present`, seed by seed.
    pub gain: Option<Interval>,
    /// Every point that ran in full over all seeds of the search, by rising values.
    pub curve: Vec<Trial>,
    /// Points that ran shorter or over one seed, by rising values: not to be compared with those of the curve.
    pub scouted: Vec<Trial>,
    /// Knobs that changed nothing at all; they stay as the scenario has them, and trials list no value of theirs.
    pub inert: Vec<String>,
    /// Seeds that had no part in the search.
    pub fresh_seeds: Vec<u64>,
    /// Simulations run.
    pub runs: u64,
}
