//! The runs of a scenario: its axes crossed, each router at each point, each seed.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use super::{Fingerprints, LabError, Metrics, RouterChoice, RunKey, Scenario};

/// One point of a scenario's grid with one router: runs that differ by their seeds alone.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The scenario with the point's values in place.
    pub scenario: Arc<Scenario>,
    /// Those values.
    pub point: BTreeMap<String, Value>,
    /// The router.
    pub router: RouterChoice,
    prints: Arc<Fingerprints>,
    world: Arc<str>,
}

/// One run of a cell.
#[derive(Clone, Debug)]
pub struct Job {
    /// The scenario with the point's values in place.
    pub scenario: Arc<Scenario>,
    /// The router, with the options it runs under.
    pub router: RouterChoice,
    /// Names the run, its seed included.
    pub key: RunKey,
}

/// What a sweep chose.
#[derive(Clone, Debug)]
pub struct Best {
    /// The cell under the options that its runs take.
    pub cell: Cell,
    /// Their mean OnTimeUtility in the round that decided; `None` without a sweep.
    pub on_time_utility: Option<f64>,
}

/// Returns the cells of a scenario: points in the order of their axes, routers in theirs.
///
/// # Errors
/// [`LabError::Invalid`] where an axis names no key of a scenario or a value does not fit there or breaks a rule.
pub fn cells(scenario: &Scenario, prints: &Arc<Fingerprints>) -> Result<Vec<Cell>, LabError> {
    let mut cells = Vec::new();
    let world: Arc<str> = prints.of_world(scenario).into();
    for point in points(&scenario.axes) {
        let placed = Arc::new(place(scenario, &point)?);
        let cell = |router: &RouterChoice| Cell {
            scenario: Arc::clone(&placed),
            point: point.clone(),
            router: router.clone(),
            prints: Arc::clone(prints),
            world: Arc::clone(&world),
        };
        cells.extend(scenario.routers.iter().map(cell));
    }
    Ok(cells)
}

impl Cell {
    /// Returns the digest of what all runs of the scenario share.
    #[must_use]
    pub fn world(&self) -> &str {
        &self.world
    }

    /// Returns the runs, one a seed.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        self.scenario
            .seeds
            .iter()
            .map(|seed| self.job(Arc::clone(&self.scenario), &self.router, *seed))
            .collect()
    }

    /// Returns the short runs that try each option set of the router's sweep, set by set; none without a sweep.
    #[must_use]
    pub fn trials(&self) -> Vec<Vec<Job>> {
        let Some(sweep) = &self.router.sweep else { return Vec::new() };
        let every: Vec<usize> = (0..sweep.options.len()).collect();
        self.tries(&every, sweep.duration_s)
    }

    /// Returns the runs of the second round, as long as the scenario's own, set by set from the best of the short
    /// round; none where that decides alone. `tried` holds the metrics of [`Cell::trials`] in their order.
    #[must_use]
    pub fn finals(&self, tried: &[Vec<Metrics>]) -> Vec<Vec<Job>> {
        self.tries(&self.finalists(tried), self.scenario.duration_s)
    }

    /// Returns the cell under its best option set: the one with the highest mean OnTimeUtility in the finals, or
    /// in the short round where there were none, and the first among equals. `tried` and `finals` hold the metrics
    /// of [`Cell::trials`] and [`Cell::finals`] in their order.
    #[must_use]
    pub fn at_its_best(&self, tried: &[Vec<Metrics>], finals: &[Vec<Metrics>]) -> Best {
        let last = match finals {
            [] => best_first(tried).first().map(|(set, mean)| (*set, *mean)),
            _ => best_first(finals)
                .first()
                .and_then(|(place, mean)| Some((*self.finalists(tried).get(*place)?, *mean))),
        };
        let options = |(set, _): &(usize, f64)| self.router.sweep.as_ref()?.options.get(*set);
        let cell = match last.as_ref().and_then(options) {
            Some(options) => Self { router: self.with(options), ..self.clone() },
            None => self.clone(),
        };
        Best { cell, on_time_utility: last.map(|(_, mean)| mean) }
    }

    /// Returns the places of the option sets that are tried again, the best of the short round first.
    fn finalists(&self, tried: &[Vec<Metrics>]) -> Vec<usize> {
        let most = self.router.sweep.as_ref().map_or(0, |sweep| sweep.finalists);
        let best: Vec<usize> = best_first(tried).into_iter().map(|(set, _)| set).take(most).collect();
        if best.len() > 1 { best } else { Vec::new() }
    }

    /// Returns the runs of some option sets on the sweep's seeds, set by set.
    fn tries(&self, sets: &[usize], duration_s: f64) -> Vec<Vec<Job>> {
        let Some(sweep) = &self.router.sweep else { return Vec::new() };
        let scenario = Scenario {
            duration_s,
            keep_requests: 0,
            seeds: sweep.seeds.clone(),
            ..Scenario::clone(&self.scenario)
        };
        let scenario = Arc::new(scenario);
        let of = |options: &Map<String, Value>| {
            let router = self.with(options);
            sweep.seeds.iter().map(|seed| self.job(Arc::clone(&scenario), &router, *seed)).collect()
        };
        sets.iter().filter_map(|set| sweep.options.get(*set)).map(of).collect()
    }

    fn with(&self, options: &Map<String, Value>) -> RouterChoice {
        let mut router = RouterChoice { sweep: None, ..self.router.clone() };
        router.policy.options.extend(options.clone());
        router
    }

    fn job(&self, scenario: Arc<Scenario>, router: &RouterChoice, seed: u64) -> Job {
        let key = RunKey {
            scenario: scenario.name.clone(),
            point: self.point.clone(),
            router: router.label.clone(),
            options: router.policy.options.clone(),
            seed,
            digest: self.prints.of_run(&scenario, router),
            world: self.world.to_string(),
        };
        Job { scenario, router: router.clone(), key }
    }
}

/// Returns the place of each option set and its mean OnTimeUtility, the highest first, equals in their order.
fn best_first(tried: &[Vec<Metrics>]) -> Vec<(usize, f64)> {
    let mean = |metrics: &Vec<Metrics>| {
        // An empty sum is -0, which `total_cmp` puts below 0.
        metrics.iter().map(|m| m.on_time_utility).sum::<f64>() / metrics.len().max(1) as f64 + 0.0
    };
    let mut sets: Vec<(usize, f64)> = tried.iter().map(mean).enumerate().collect();
    sets.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    sets
}

/// Crosses the axes, the last one fastest; one empty point without any.
fn points(axes: &BTreeMap<String, Vec<Value>>) -> Vec<BTreeMap<String, Value>> {
    let mut points = vec![BTreeMap::new()];
    for (axis, values) in axes {
        let with = |point: &BTreeMap<String, Value>| {
            let point = point.clone();
            values.iter().map(move |value| {
                let mut point = point.clone();
                point.insert(axis.clone(), value.clone());
                point
            })
        };
        points = points.iter().flat_map(with).collect();
    }
    points
}

/// Puts a point's values into the scenario.
fn place(scenario: &Scenario, point: &BTreeMap<String, Value>) -> Result<Scenario, LabError> {
    let invalid = |key: &str, rule: String| LabError::Invalid {
        place: scenario.name.clone(),
        key: format!("axes.{key}"),
        rule,
    };
    let bare = Scenario { axes: BTreeMap::new(), ..scenario.clone() };
    let keys = || point.keys().cloned().collect::<Vec<_>>().join(", ");
    let mut value = serde_json::to_value(&bare).map_err(|source| invalid(&keys(), source.to_string()))?;
    for (key, to) in point {
        set(&mut value, key, to).map_err(|rule| invalid(key, rule))?;
    }
    let placed: Scenario = serde_json::from_value(value)
        .map_err(|source| invalid(&keys(), format!("does not fit: {source}")))?;
    let values: Vec<String> = point.iter().map(|(key, to)| format!("{key} = {to}")).collect();
    let with = if values.is_empty() { "" } else { " with " };
    placed.check(&format!("{}{with}{}", scenario.name, values.join(", ")))?;
    Ok(placed)
}

/// Sets the value under a dotted key, making the objects on the way.
fn set(value: &mut Value, key: &str, to: &Value) -> Result<(), String> {
    let mut at = value;
    for part in key.split('.') {
        let Value::Object(fields) = at else {
            return Err(format!("leads into a value that has no key `{part}`"));
        };
        at = fields.entry(part).or_insert_with(|| Value::Object(Map::new()));
    }
    *at = to.clone();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn none() -> Arc<Fingerprints> {
        Arc::default()
    }

    fn scenario() -> Scenario {
        Scenario::parse(
            "
            name: grid
            pool: []
            workload: {name: w}
            arrivals: {name: poisson, options: {rate_qps: 1}}
            duration_s: 60
            seeds: [1, 2]
            axes: {arrivals.options.rate_qps: [6, 8], snapshots.delay_ms: [0, 25, 100]}
            routers:
              - {label: bear, policy: {name: bear}}
              - label: score
                policy: {name: score, options: {alpha: 1.0, fixed: 3}}
                sweep: {options: [{alpha: 0.1}, {alpha: 0.5}], duration_s: 30, seeds: [101, 102]}
            ",
            "grid",
        )
        .unwrap()
    }

    #[test]
    fn axes_cross_and_land_where_their_keys_say() {
        let cells = cells(&scenario(), &none()).unwrap();
        assert_eq!(cells.len(), 2 * 3 * 2);
        let at: Vec<(f64, f64)> = cells
            .iter()
            .step_by(2)
            .map(|c| {
                (c.scenario.arrivals.options["rate_qps"].as_f64().unwrap(), c.scenario.snapshots.delay_ms)
            })
            .collect();
        assert_eq!(at, [(6.0, 0.0), (6.0, 25.0), (6.0, 100.0), (8.0, 0.0), (8.0, 25.0), (8.0, 100.0)]);
        let keys: Vec<u64> = cells[0].jobs().iter().map(|job| job.key.seed).collect();
        assert_eq!(keys, [1, 2]);
    }

    #[test]
    fn runs_that_differ_have_different_digests_and_seeds_and_prose_do_not_count() {
        let digests = |scenario: &Scenario| -> Vec<String> {
            cells(scenario, &none()).unwrap().iter().map(|c| c.jobs()[0].key.digest.clone()).collect()
        };
        let all = digests(&scenario());
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        let other = Scenario { about: String::from("x"), seeds: vec![9], ..scenario() };
        assert_eq!(digests(&other), all);
        assert_ne!(digests(&Scenario { warmup_s: 1.0, ..scenario() }), all);
        let worlds = |scenario: &Scenario| -> std::collections::BTreeSet<String> {
            let cells = cells(scenario, &none()).unwrap();
            cells.iter().flat_map(Cell::jobs).map(|job| job.key.world).collect()
        };
        assert_eq!(worlds(&scenario()).len(), 1);
        assert_ne!(worlds(&Scenario { warmup_s: 1.0, ..scenario() }), worlds(&scenario()));
    }

    #[test]
    fn a_sweep_tries_every_set_and_keeps_the_best() {
        let cells = cells(&scenario(), &none()).unwrap();
        assert!(cells[0].trials().is_empty());
        let trials = cells[1].trials();
        assert_eq!((trials.len(), trials[0].len()), (2, 2));
        assert_eq!(trials[1][0].key.options, json!({"alpha": 0.5, "fixed": 3}).as_object().cloned().unwrap());
        assert_eq!((trials[0][0].scenario.duration_s, trials[0][1].key.seed), (30.0, 102));
        let metrics = |u| vec![Metrics { on_time_utility: u, ..Metrics::default() }; 2];
        let best = cells[1].at_its_best(&[metrics(0.3), metrics(0.4)], &[]);
        assert_eq!(best.cell.router.policy.options["alpha"], json!(0.5));
        assert_eq!(best.on_time_utility, Some(0.4));
        let best = cells[1].at_its_best(&[metrics(0.0), metrics(-0.0)], &[]);
        assert_eq!(best.cell.router.policy.options["alpha"], json!(0.1));
        assert_eq!(cells[0].at_its_best(&[], &[]).on_time_utility, None);
    }

    #[test]
    fn the_best_of_the_short_round_are_tried_again_at_full_length() {
        let of = |finalists: usize| {
            let mut scenario = scenario();
            let sweep = scenario.routers[1].sweep.as_mut().unwrap();
            assert_eq!(sweep.finalists, 3);
            sweep.finalists = finalists;
            sweep.options = [0.1, 0.2, 0.3, 0.4]
                .map(|alpha| json!({"alpha": alpha}).as_object().cloned().unwrap())
                .into();
            scenario.keep_requests = 5;
            cells(&scenario, &none()).unwrap().swap_remove(1)
        };
        let metrics = |u| vec![Metrics { on_time_utility: u, ..Metrics::default() }; 2];
        let tried = [0.1, 0.4, 0.3, 0.4].map(metrics);
        let cell = of(3);
        let finals = cell.finals(&tried);
        let alphas: Vec<_> = finals.iter().map(|set| set[0].key.options["alpha"].as_f64().unwrap()).collect();
        assert_eq!(alphas, [0.2, 0.4, 0.3]);
        let seeds: Vec<u64> = finals[0].iter().map(|job| job.key.seed).collect();
        assert_eq!(seeds, [101, 102]);
        assert_eq!((finals[0][0].scenario.duration_s, finals[0][0].scenario.keep_requests), (60.0, 0));
        assert_ne!(finals[0][0].key.digest, cell.trials()[1][0].key.digest);
        let taken = |cell: &Cell, finals: &[Vec<Metrics>]| {
            cell.at_its_best(&tried, finals).cell.router.policy.options["alpha"].as_f64().unwrap()
        };
        assert_eq!(taken(&cell, &[0.1, 0.2, 0.3].map(metrics)), 0.3);
        assert_eq!(taken(&cell, &[0.2, 0.3, 0.3].map(metrics)), 0.4);
        assert_eq!(of(9).finals(&tried).len(), 4);
        for alone in [0, 1] {
            assert!(of(alone).finals(&tried).is_empty());
            assert_eq!(taken(&of(alone), &[]), 0.2);
        }
    }

    #[test]
    fn an_axis_that_leads_nowhere_is_named() {
        let mut wrong = scenario();
        wrong.axes = [(String::from("snapshots.delay"), vec![json!(3)])].into();
        let error = cells(&wrong, &none()).unwrap_err().to_string();
        assert!(error.contains("snapshots.delay") && error.contains("unknown field"), "{error}");
        wrong.axes = [(String::from("duration_s.x"), vec![json!(3)])].into();
        assert!(cells(&wrong, &none()).unwrap_err().to_string().contains("duration_s.x"));
        wrong.axes = [(String::from("snapshots.delay_ms"), vec![json!(3), json!(-3)])].into();
        let error = cells(&wrong, &none()).unwrap_err().to_string();
        assert!(error.contains("grid with snapshots.delay_ms = -3: `snapshots.delay_ms` is -3"), "{error}");
    }
}
