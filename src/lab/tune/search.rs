//! The search: a coarse grid in short runs, halving over longer runs and more seeds, then golden sections.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    Effort, Plan, Simulate, Trial,
    knob::{Range, turned},
};
use crate::lab::{LabError, Metrics, Scenario};

/// Grid points a knob, by the number of knobs.
const GRID: [usize; 5] = [1, 9, 5, 4, 3];
/// One in so many points goes on to more simulation.
const KEPT_OF: usize = 3;
/// At least so many do.
const KEPT_LEAST: usize = 3;
/// A short run's part of the scenario's time.
const SHORT: f64 = 0.25;
/// (√5 − 1)/2: what a golden section leaves of a bracket.
const GOLDEN: f64 = 0.618_033_988_749_895;
/// Golden sections a knob; five leave 9% of a bracket of two grid steps.
const SECTIONS: usize = 5;

/// What the search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The keys of the values that trials list.
    pub keys: Vec<String>,
    /// The best point that meets the goals over all seeds; absent: none does.
    pub best: Option<Trial>,
    /// The point that comes nearest to the goals, the best one where it meets them.
    pub nearest: Trial,
    /// The scenario's own values, over all seeds; absent: it does not set all of them.
    pub present: Option<Trial>,
    /// Every point at its most thorough, by rising values.
    pub curve: Vec<Trial>,
    /// Knobs that changed nothing at all.
    pub inert: Vec<String>,
    /// Simulations run.
    pub runs: u64,
}

/// Searches the plan's ranges over a scenario.
///
/// # Errors
/// A plan that cannot be searched, or what the simulation says.
pub fn search(scenario: &Scenario, plan: &Plan, simulate: &mut Simulate<'_>) -> Result<Advice, LabError> {
    check(scenario, plan)?;
    let mut search = Search { scenario, plan, simulate, done: BTreeMap::new(), trials: Vec::new() };
    let present: Option<Vec<f64>> = {
        let router = &scenario.routers[plan.router];
        plan.ranges.iter().map(|range| range.present(scenario, router)).collect()
    };
    let grid = grid(plan.ranges.len());
    search.try_all(&grid, Effort::Short)?;
    let inert = search.inert(&grid);
    let mut alive: Vec<Vec<f64>> =
        grid.into_iter().filter(|at| inert.iter().all(|&knob| at[knob] == 0.0)).collect();
    for effort in [Effort::Full, Effort::AllSeeds] {
        alive = search.fittest(alive);
        search.try_all(&alive, effort)?;
    }
    let start = search.best_of(&alive);
    search.narrow(start, &inert)?;
    let present = present.map(|values| search.trial(values, Effort::AllSeeds)).transpose()?;
    Ok(search.advice(present, &inert))
}

fn check(scenario: &Scenario, plan: &Plan) -> Result<(), LabError> {
    let wrong = |key: &str, rule: String| {
        Err(LabError::Invalid { place: scenario.name.clone(), key: key.to_owned(), rule })
    };
    if plan.router >= scenario.routers.len() {
        return wrong("routers", String::from("must name the router to tune"));
    }
    if plan.seeds.is_empty() {
        return wrong("seeds", String::from("must hold at least one"));
    }
    let knobs = plan.ranges.len();
    if knobs == 0 || knobs >= GRID.len() {
        return wrong("vary", format!("must name 1 to {} knobs, not {knobs}", GRID.len() - 1));
    }
    let keys: BTreeSet<&str> = plan.ranges.iter().map(Range::key).collect();
    if keys.len() < knobs {
        return wrong("vary", String::from("must name each knob once"));
    }
    Ok(())
}

/// Returns every combination of positions, even over `[0,1]`.
fn grid(knobs: usize) -> Vec<Vec<f64>> {
    let points = GRID[knobs];
    let mut grid = vec![Vec::new()];
    for _ in 0..knobs {
        let with = |at: &Vec<f64>, i: usize| {
            let mut at = at.clone();
            at.push(i as f64 / (points - 1) as f64);
            at
        };
        grid = grid.iter().flat_map(|at| (0..points).map(move |i| with(at, i))).collect();
    }
    grid
}

/// A run's key: the bits of its values, whether it is short, its seed.
type RunKey = (Vec<u64>, bool, u64);

struct Search<'a, 's> {
    scenario: &'a Scenario,
    plan: &'a Plan,
    simulate: &'a mut Simulate<'s>,
    done: BTreeMap<RunKey, Metrics>,
    /// The most thorough trial of each point, in the order of their first.
    trials: Vec<Trial>,
}

impl Search<'_, '_> {
    fn values(&self, at: &[f64]) -> Vec<f64> {
        self.plan.ranges.iter().zip(at).map(|(range, &u)| range.value(u)).collect()
    }

    /// Tries a point; what ran before is not run again.
    fn trial(&mut self, values: Vec<f64>, effort: Effort) -> Result<Trial, LabError> {
        let seeds = match effort {
            Effort::AllSeeds => &self.plan.seeds[..],
            Effort::Short | Effort::Full => &self.plan.seeds[..1],
        };
        let short = effort == Effort::Short;
        let bits: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        let mut runs = Vec::with_capacity(seeds.len());
        for &seed in seeds {
            let key = (bits.clone(), short, seed);
            if !self.done.contains_key(&key) {
                let mut scenario = turned(self.scenario, self.plan, &values);
                scenario.seeds = vec![seed];
                if short {
                    scenario.duration_s *= SHORT;
                }
                self.done.insert(key.clone(), (self.simulate)(&scenario, seed)?);
            }
            runs.extend(self.done.get(&key).cloned());
        }
        let trial = Trial::new(self.plan, values, effort, &runs);
        match self.trials.iter_mut().find(|known| known.values == trial.values) {
            Some(known) if known.effort <= effort => *known = trial.clone(),
            Some(_) => {}
            None => self.trials.push(trial.clone()),
        }
        Ok(trial)
    }

    fn try_all(&mut self, points: &[Vec<f64>], effort: Effort) -> Result<(), LabError> {
        points.iter().try_for_each(|at| self.trial(self.values(at), effort).map(drop))
    }

    fn known(&self, at: &[f64]) -> Option<&Trial> {
        let values = self.values(at);
        self.trials.iter().find(|trial| trial.values == values)
    }

    /// Returns the knobs along which no two grid points differ in any metric.
    fn inert(&self, grid: &[Vec<f64>]) -> Vec<usize> {
        let run = |at: &[f64]| {
            let bits: Vec<u64> = self.values(at).iter().map(|value| value.to_bits()).collect();
            self.done.get(&(bits, true, self.plan.seeds[0]))
        };
        let alike = |knob: usize| {
            grid.iter().all(|at| {
                let mut first = at.clone();
                first[knob] = 0.0;
                run(at) == run(&first)
            })
        };
        (0..self.plan.ranges.len()).filter(|&knob| alike(knob)).collect()
    }

    /// Returns the part of the points that deserves more simulation, best first.
    fn fittest(&self, mut points: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        let keep = points.len().div_ceil(KEPT_OF).max(KEPT_LEAST);
        points.sort_by(|a, b| match (self.known(a), self.known(b)) {
            (Some(a), Some(b)) => a.better(b),
            _ => std::cmp::Ordering::Equal,
        });
        points.truncate(keep);
        points
    }

    fn best_of(&self, points: &[Vec<f64>]) -> Vec<f64> {
        self.fittest(points.to_vec()).swap_remove(0)
    }

    /// Narrows each knob in turn about the best point, between its neighbours on the grid.
    fn narrow(&mut self, start: Vec<f64>, inert: &[usize]) -> Result<(), LabError> {
        let mut at = start;
        let step = 1.0 / (GRID[at.len()] - 1) as f64;
        for knob in (0..at.len()).filter(|knob| !inert.contains(knob)) {
            let (mut low, mut high) = ((at[knob] - step).max(0.0), (at[knob] + step).min(1.0));
            let mut inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)];
            let mut tried = [self.at(&at, knob, inner[0])?, self.at(&at, knob, inner[1])?];
            for _ in 0..SECTIONS {
                if tried[0].better(&tried[1]).is_le() {
                    high = inner[1];
                    inner = [high - GOLDEN * (high - low), inner[0]];
                    let [first, _] = tried;
                    tried = [self.at(&at, knob, inner[0])?, first];
                } else {
                    low = inner[0];
                    inner = [inner[1], low + GOLDEN * (high - low)];
                    let [_, second] = tried;
                    tried = [second, self.at(&at, knob, inner[1])?];
                }
            }
            let middle = self.at(&at, knob, at[knob])?;
            let better = if tried[0].better(&tried[1]).is_le() { 0 } else { 1 };
            if tried[better].better(&middle).is_lt() {
                at[knob] = inner[better];
            }
        }
        Ok(())
    }

    fn at(&mut self, at: &[f64], knob: usize, u: f64) -> Result<Trial, LabError> {
        let mut at = at.to_vec();
        at[knob] = u;
        self.trial(self.values(&at), Effort::AllSeeds)
    }

    fn advice(mut self, present: Option<Trial>, inert: &[usize]) -> Advice {
        for i in 0..self.trials.len() {
            let trial = &self.trials[i];
            let beaten = self.trials.iter().any(|other| other.dominates(trial, &self.plan.goals));
            self.trials[i].on_front = !beaten;
        }
        let thorough = self.trials.iter().filter(|trial| trial.effort == Effort::AllSeeds);
        let nearest = thorough.min_by(|a, b| a.better(b)).cloned();
        // The last stage tries at least one point over all seeds.
        let nearest = nearest.unwrap_or_else(|| self.trials[0].clone());
        let mut curve = self.trials;
        curve.sort_by(|a, b| {
            let pairs = a.values.iter().zip(&b.values);
            pairs
                .map(|(a, b)| a.total_cmp(b))
                .find(|order| order.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let keys: Vec<String> = self.plan.ranges.iter().map(|range| range.key().to_owned()).collect();
        Advice {
            best: nearest.meets().then(|| nearest.clone()),
            nearest,
            present,
            curve,
            inert: inert.iter().map(|&knob| keys[knob].clone()).collect(),
            runs: self.done.len() as u64,
            keys,
        }
    }
}
