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

/// Returns the cells of a scenario: points in the order of their axes, routers in theirs.
///
/// # Errors
/// [`LabError::Invalid`] where an axis names no key of a scenario or a value does not fit there.
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

    /// Returns the runs that try each option set of the router's sweep, set by set; none without a sweep.
    #[must_use]
    pub fn trials(&self) -> Vec<Vec<Job>> {
        let Some(sweep) = &self.router.sweep else { return Vec::new() };
        let short = Scenario {
            duration_s: sweep.duration_s,
            keep_requests: 0,
            seeds: sweep.seeds.clone(),
            ..Scenario::clone(&self.scenario)
        };
        let short = Arc::new(short);
        let of = |options: &Map<String, Value>| {
            let router = self.with(options);
            sweep.seeds.iter().map(|seed| self.job(Arc::clone(&short), &router, *seed)).collect()
        };
        sweep.options.iter().map(of).collect()
    }

    /// Returns the cell under the option set with the highest mean OnTimeUtility, the first among equals;
    /// `tried` holds the metrics of [`Cell::trials`] in their order.
    #[must_use]
    pub fn at_its_best(&self, tried: &[Vec<Metrics>]) -> Self {
        let mean = |metrics: &Vec<Metrics>| {
            metrics.iter().map(|m| m.on_time_utility).sum::<f64>() / metrics.len().max(1) as f64
        };
        let mut best: Option<(usize, f64)> = None;
        for (i, metrics) in tried.iter().enumerate() {
            if best.is_none_or(|(_, most)| mean(metrics) > most) {
                best = Some((i, mean(metrics)));
            }
        }
        let options = self.router.sweep.as_ref().zip(best).and_then(|(sweep, (i, _))| sweep.options.get(i));
        match options {
            Some(options) => Self { router: self.with(options), ..self.clone() },
            None => self.clone(),
        }
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
    serde_json::from_value(value).map_err(|source| invalid(&keys(), format!("does not fit: {source}")))
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
        let best = cells[1].at_its_best(&[metrics(0.3), metrics(0.4)]);
        assert_eq!(best.router.policy.options["alpha"], json!(0.5));
        let best = cells[1].at_its_best(&[metrics(0.4), metrics(0.4)]);
        assert_eq!(best.router.policy.options["alpha"], json!(0.1));
    }

    #[test]
    fn an_axis_that_leads_nowhere_is_named() {
        let mut wrong = scenario();
        wrong.axes = [(String::from("snapshots.delay"), vec![json!(3)])].into();
        let error = cells(&wrong, &none()).unwrap_err().to_string();
        assert!(error.contains("snapshots.delay") && error.contains("unknown field"), "{error}");
        wrong.axes = [(String::from("duration_s.x"), vec![json!(3)])].into();
        assert!(cells(&wrong, &none()).unwrap_err().to_string().contains("duration_s.x"));
    }
}
