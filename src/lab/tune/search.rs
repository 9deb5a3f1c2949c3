//! The search: a coarse grid in short runs, halving over longer runs and more seeds, then golden sections; what it
//! finds is judged on seeds that it never saw.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Advice, Effort, Plan, Run, Simulate, Trial,
    knob::{Range, turned},
};
use crate::lab::{Interval, LabError, Metrics, Scenario, figures};

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
/// Fewest fresh seeds: at five Student's t is 2.8, at two it would be 12.7.
const FRESH_LEAST: usize = 5;
/// The most points that are judged on fresh seeds until one meets the goals there too. One at the edge of a goal
/// misses it there half the time; among many, some would meet it by luck.
const JUDGED_MOST: usize = 3;

/// Searches the plan's ranges over a scenario.
///
/// # Errors
/// A plan that cannot be searched, or what the simulation says.
pub fn search(scenario: &Scenario, plan: &Plan, simulate: &mut Simulate<'_>) -> Result<Advice, LabError> {
    check(scenario, plan)?;
    let grid = grid(plan.ranges.len());
    let mut search = Search::new(scenario, plan, simulate);
    search.try_all(&grid, Effort::Short)?;
    let inert = search.inert(&grid)?;
    let mut alive = search.leave(&inert, grid);
    for effort in [Effort::Full, Effort::AllSeeds] {
        alive = search.fittest(alive);
        search.try_all(&alive, effort)?;
    }
    let start = search.fittest(alive).swap_remove(0);
    search.narrow(start)?;
    // What is there already competes, and wins ties.
    let present = search.present();
    search.tried(present.into_iter().collect(), Effort::AllSeeds)?;
    search.advice(inert.iter().map(|&knob| plan.ranges[knob].key().to_owned()).collect())
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

/// Returns as many seeds as there are, and enough for an interval, none of them among `seeds`.
fn fresh(seeds: &[u64]) -> Vec<u64> {
    let largest = seeds.iter().copied().max().unwrap_or(0);
    let after = (1..).map(|step| largest.wrapping_add(step)).filter(|seed| !seeds.contains(seed));
    after.take(seeds.len().max(FRESH_LEAST)).collect()
}

/// A run's key: the bits of its values, whether it is short, its seed.
type RunKey = (Vec<u64>, bool, u64);

struct Search<'a, 's> {
    scenario: &'a Scenario,
    /// What is searched: the knobs that turn out inert are left out of it.
    plan: Plan,
    simulate: &'a mut Simulate<'s>,
    fresh: Vec<u64>,
    /// From one grid position to the next.
    step: f64,
    done: BTreeMap<RunKey, Metrics>,
    /// Simulations run.
    runs: u64,
    /// The most thorough trial of each point, in the order of their first.
    trials: Vec<Trial>,
}

impl<'a, 's> Search<'a, 's> {
    fn new(scenario: &'a Scenario, plan: &Plan, simulate: &'a mut Simulate<'s>) -> Self {
        Self {
            scenario,
            fresh: fresh(&plan.seeds),
            step: 1.0 / (GRID[plan.ranges.len()] - 1) as f64,
            plan: plan.clone(),
            simulate,
            done: BTreeMap::new(),
            runs: 0,
            trials: Vec::new(),
        }
    }

    fn values(&self, at: &[f64]) -> Vec<f64> {
        self.plan.ranges.iter().zip(at).map(|(range, &u)| range.value(u)).collect()
    }

    fn seeds(&self, effort: Effort) -> &[u64] {
        match effort {
            Effort::Short | Effort::Full => &self.plan.seeds[..1],
            Effort::AllSeeds => &self.plan.seeds,
            Effort::Fresh => &self.fresh,
        }
    }

    fn keys(&self, values: &[f64], effort: Effort) -> Vec<RunKey> {
        let bits: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        self.seeds(effort).iter().map(|&seed| (bits.clone(), effort == Effort::Short, seed)).collect()
    }

    /// Plays what points need and have not got, all at once.
    fn play(&mut self, points: &[Vec<f64>], effort: Effort) -> Result<(), LabError> {
        let mut missing: BTreeSet<RunKey> = BTreeSet::new();
        let (mut keys, mut runs) = (Vec::new(), Vec::new());
        for values in points {
            for key in self.keys(values, effort) {
                if self.done.contains_key(&key) || !missing.insert(key.clone()) {
                    continue;
                }
                let seed = key.2;
                let mut scenario = turned(self.scenario, &self.plan, values);
                scenario.seeds = vec![seed];
                if effort == Effort::Short {
                    scenario.duration_s *= SHORT;
                }
                keys.push(key);
                runs.push(Run { scenario, seed });
            }
        }
        if !runs.is_empty() {
            self.runs += runs.len() as u64;
            self.done.extend(keys.into_iter().zip((self.simulate)(&runs)?));
        }
        Ok(())
    }

    fn metrics(&self, values: &[f64], effort: Effort) -> Vec<Metrics> {
        self.keys(values, effort).iter().filter_map(|key| self.done.get(key).cloned()).collect()
    }

    /// Tries points; what ran before is not run again.
    fn tried(&mut self, points: Vec<Vec<f64>>, effort: Effort) -> Result<Vec<Trial>, LabError> {
        self.play(&points, effort)?;
        let mut trials = Vec::with_capacity(points.len());
        for values in points {
            let runs = self.metrics(&values, effort);
            let trial = Trial::new(&self.plan, values, effort, &runs);
            match self.trials.iter_mut().find(|known| known.values == trial.values) {
                _ if effort == Effort::Fresh => {}
                Some(known) if known.effort <= effort => *known = trial.clone(),
                Some(_) => {}
                None => self.trials.push(trial.clone()),
            }
            trials.push(trial);
        }
        Ok(trials)
    }

    fn try_all(&mut self, points: &[Vec<f64>], effort: Effort) -> Result<(), LabError> {
        self.tried(points.iter().map(|at| self.values(at)).collect(), effort).map(drop)
    }

    fn known(&self, at: &[f64]) -> Option<&Trial> {
        let values = self.values(at);
        self.trials.iter().find(|trial| trial.values == values)
    }

    /// Returns the knobs along which no two grid points differ in any metric, nor the two ends in a full run.
    fn inert(&mut self, grid: &[Vec<f64>]) -> Result<Vec<usize>, LabError> {
        let mut inert = self.alike_in_short(grid);
        let knobs = self.plan.ranges.len();
        let ends = |knob: usize| {
            [0.0, 1.0].map(|u| {
                self.values(&(0..knobs).map(|k| if k == knob { u } else { 0.5 }).collect::<Vec<_>>())
            })
        };
        let ends: Vec<[Vec<f64>; 2]> = inert.iter().map(|&knob| ends(knob)).collect();
        self.play(&ends.concat(), Effort::Full)?;
        let mut ends = ends.iter();
        inert.retain(|_| {
            ends.next()
                .is_some_and(|[low, high]| self.text(low, Effort::Full) == self.text(high, Effort::Full))
        });
        Ok(inert)
    }

    /// Returns a point's metrics as text, in which one that is no number equals itself.
    fn text(&self, values: &[f64], effort: Effort) -> Option<String> {
        serde_json::to_string(&self.metrics(values, effort)).ok()
    }

    fn alike_in_short(&self, grid: &[Vec<f64>]) -> Vec<usize> {
        let run = |at: &[f64]| self.text(&self.values(at), Effort::Short);
        let runs: BTreeMap<Vec<u64>, Option<String>> =
            grid.iter().map(|at| (at.iter().map(|u| u.to_bits()).collect(), run(at))).collect();
        let alike = |knob: usize| {
            runs.iter().all(|(at, run)| {
                let mut first = at.clone();
                first[knob] = 0.0_f64.to_bits();
                runs.get(&first) == Some(run)
            })
        };
        (0..self.plan.ranges.len()).filter(|&knob| alike(knob)).collect()
    }

    /// Leaves inert knobs at what they are now and goes on without them; returns the points without them. What ran
    /// at any of their values stands for what they are.
    fn leave(&mut self, inert: &[usize], grid: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        fn rest<T: Clone>(of: &[T], inert: &[usize]) -> Vec<T> {
            (0..of.len()).filter(|knob| !inert.contains(knob)).map(|knob| of[knob].clone()).collect()
        }
        self.plan.ranges = rest(&self.plan.ranges, inert);
        let done = std::mem::take(&mut self.done);
        self.done =
            done.into_iter().map(|((bits, short, seed), m)| ((rest(&bits, inert), short, seed), m)).collect();
        let mut trials: Vec<Trial> = Vec::new();
        for mut trial in std::mem::take(&mut self.trials) {
            trial.values = rest(&trial.values, inert);
            if trials.iter().all(|known| known.values != trial.values) {
                trials.push(trial);
            }
        }
        self.trials = trials;
        grid.iter().map(|at| rest(at, inert)).collect()
    }

    /// Returns the part of the points that deserves more simulation, best first; points of the same values are one.
    fn fittest(&self, points: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        let mut seen: Vec<Vec<f64>> = Vec::new();
        let mut fit: Vec<Vec<f64>> = Vec::new();
        for at in points {
            let values = self.values(&at);
            if !seen.contains(&values) {
                seen.push(values);
                fit.push(at);
            }
        }
        fit.sort_by(|a, b| match (self.known(a), self.known(b)) {
            (Some(a), Some(b)) => a.better(b),
            _ => std::cmp::Ordering::Equal,
        });
        fit.truncate(fit.len().div_ceil(KEPT_OF).max(KEPT_LEAST));
        fit
    }

    /// Narrows each knob in turn about the best point, between its neighbours on the grid.
    fn narrow(&mut self, start: Vec<f64>) -> Result<(), LabError> {
        let mut at = start;
        for knob in 0..at.len() {
            let (mut low, mut high) = ((at[knob] - self.step).max(0.0), (at[knob] + self.step).min(1.0));
            let mut inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)];
            let [left, middle, right] = self.along(&at, knob, [inner[0], at[knob], inner[1]])?;
            let mut tried = [left, right];
            for _ in 0..SECTIONS {
                let [left, right] = tried;
                if left.better(&right).is_le() {
                    high = inner[1];
                    inner = [high - GOLDEN * (high - low), inner[0]];
                    let [new] = self.along(&at, knob, [inner[0]])?;
                    tried = [new, left];
                } else {
                    low = inner[0];
                    inner = [inner[1], low + GOLDEN * (high - low)];
                    let [new] = self.along(&at, knob, [inner[1]])?;
                    tried = [right, new];
                }
            }
            let better = if tried[0].better(&tried[1]).is_le() { 0 } else { 1 };
            if tried[better].better(&middle).is_lt() {
                at[knob] = inner[better];
            }
        }
        Ok(())
    }

    /// Tries positions of one knob over all seeds.
    fn along<const N: usize>(
        &mut self,
        at: &[f64],
        knob: usize,
        positions: [f64; N],
    ) -> Result<[Trial; N], LabError> {
        let points = positions.map(|u| {
            let mut at = at.to_vec();
            at[knob] = u;
            self.values(&at)
        });
        let trials = self.tried(points.to_vec(), Effort::AllSeeds)?;
        // As many as positions; the error cannot be.
        trials.try_into().map_err(|_| LabError::Invalid {
            place: self.scenario.name.clone(),
            key: String::from("vary"),
            rule: String::from("gave no trial"),
        })
    }

    fn advice(mut self, inert: Vec<String>) -> Result<Advice, LabError> {
        let whole = |trial: &Trial| trial.effort == Effort::AllSeeds;
        let (mut curve, mut scouted): (Vec<Trial>, Vec<Trial>) =
            std::mem::take(&mut self.trials).into_iter().partition(whole);
        let front: Vec<bool> = curve
            .iter()
            .map(|trial| trial.is_known(&self.plan) && !curve.iter().any(|o| o.dominates(trial, &self.plan)))
            .collect();
        for (trial, on_front) in curve.iter_mut().zip(front) {
            trial.on_front = on_front;
        }
        let by_values = |a: &Trial, b: &Trial| a.order(b);
        curve.sort_by(by_values);
        scouted.sort_by(by_values);
        let (found, judged) = self.judge(&curve)?;
        let present = match self.present() {
            Some(values) => self.tried(vec![values], Effort::Fresh)?.pop(),
            None => None,
        };
        let gain = present.as_ref().and_then(|present| self.gain(&judged, present));
        Ok(Advice {
            keys: self.plan.ranges.iter().map(|range| range.key().to_owned()).collect(),
            best: judged.meets().then(|| judged.clone()),
            found,
            judged,
            present,
            gain,
            curve,
            scouted,
            inert,
            fresh_seeds: self.fresh,
            runs: self.runs,
        })
    }

    /// Returns the knobs as the scenario has them; absent: it does not set all of them.
    fn present(&self) -> Option<Vec<f64>> {
        let router = &self.scenario.routers[self.plan.router];
        self.plan.ranges.iter().map(|range| range.present(self.scenario, router)).collect()
    }

    /// Judges the best points on fresh seeds until one meets the goals there too; returns it as the search saw it
    /// and as it is judged. Where none does, that is the one that comes nearest. After one that misses, the next is
    /// the best that would meet the goals if fresh seeds moved it as they moved that one.
    fn judge(&mut self, curve: &[Trial]) -> Result<(Trial, Trial), LabError> {
        let mut best: Vec<&Trial> = curve.iter().collect();
        let present = self.present();
        let changed = |trial: &Trial| Some(&trial.values) != present.as_ref();
        best.sort_by(|a, b| a.better(b).then_with(|| changed(a).cmp(&changed(b))));
        let meeting = best.iter().filter(|trial| trial.meets()).count();
        best.truncate(meeting.max(1));
        let mut nearest: Option<(Trial, Trial)> = None;
        for _ in 0..JUDGED_MOST {
            let Some(&found) = best.first() else { break };
            let Some(judged) = self.tried(vec![found.values.clone()], Effort::Fresh)?.pop() else { break };
            let met = judged.meets();
            best.retain(|next| next.meets_if_moved(found, &judged, &self.plan));
            if nearest.as_ref().is_none_or(|(_, so_far)| judged.better(so_far).is_lt()) {
                nearest = Some((found.clone(), judged));
            }
            if met {
                break;
            }
        }
        nearest.ok_or_else(|| LabError::Invalid {
            place: self.scenario.name.clone(),
            key: String::from("vary"),
            rule: String::from("gave no point over all seeds"),
        })
    }

    /// Returns how much more of the objective a point has than the present one, seed by seed.
    fn gain(&self, judged: &Trial, present: &Trial) -> Option<Interval> {
        let values = |trial: &Trial| -> Option<Vec<f64>> {
            let runs = self.metrics(&trial.values, Effort::Fresh);
            runs.iter().map(|run| super::metric(run, &self.plan.objective.metric)).collect()
        };
        let (judged, present) = (values(judged)?, values(present)?);
        let differences: Vec<f64> = judged.iter().zip(&present).map(|(a, b)| a - b).collect();
        figures::interval(&differences).filter(|interval| interval.mean.is_finite())
    }
}
