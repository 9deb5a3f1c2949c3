//! The runs of one scenario, picked by router and by the values of its axes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::interval;
use crate::lab::{Interval, Metrics, RunLine};

/// Runs of one scenario, or of some points of it.
#[derive(Clone, Debug)]
pub struct Runs<'a>(Vec<&'a RunLine>);

/// One router's values along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The router's label.
    pub router: String,
    /// Its values, rising along the axis.
    pub points: Vec<Point>,
}

/// A value over seeds at one place of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The place.
    pub x: f64,
    /// The mean over seeds with its interval.
    pub y: Interval,
}

/// Where a router's requests went at one place of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    /// The place.
    pub x: f64,
    /// A model with the shares of all requests that it served within and after their target, means over seeds.
    pub parts: Vec<(String, f64, f64)>,
    /// Share of requests within their target.
    pub attainment: Interval,
}

impl<'a> Runs<'a> {
    /// Takes a scenario's runs; of two lines of one run the later counts.
    #[must_use]
    pub fn of(lines: &'a [RunLine], scenario: &str) -> Self {
        let mut runs: BTreeMap<String, &RunLine> = BTreeMap::new();
        for line in lines.iter().filter(|l| l.key.scenario == scenario) {
            let point = serde_json::to_string(&line.key.point).unwrap_or_default();
            runs.insert(format!("{}\u{0}{point}\u{0}{:020}", line.key.router, line.key.seed), line);
        }
        Self(runs.into_values().collect())
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the runs.
    #[must_use]
    pub fn lines(&self) -> &[&'a RunLine] {
        &self.0
    }

    /// Keeps the runs of a router.
    #[must_use]
    pub fn router(&self, label: &str) -> Self {
        Self(self.0.iter().copied().filter(|l| l.key.router == label).collect())
    }

    /// Keeps the runs where an axis has a value; runs without this axis stay.
    #[must_use]
    pub fn at(&self, axis: &str, value: &Value) -> Self {
        let same = |v: &Value| match (v.as_f64(), value.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            _ => v == value,
        };
        Self(self.0.iter().copied().filter(|l| l.key.point.get(axis).is_none_or(same)).collect())
    }

    /// Returns the routers' labels, sorted.
    #[must_use]
    pub fn routers(&self) -> Vec<String> {
        let mut labels: Vec<String> = self.0.iter().map(|l| l.key.router.clone()).collect();
        labels.sort();
        labels.dedup();
        labels
    }

    /// Returns the seeds, rising.
    #[must_use]
    pub fn seeds(&self) -> Vec<u64> {
        let mut seeds: Vec<u64> = self.0.iter().map(|l| l.key.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds
    }

    /// Returns the numbers that an axis takes, rising.
    #[must_use]
    pub fn places(&self, axis: &str) -> Vec<f64> {
        let mut places: Vec<f64> =
            self.0.iter().filter_map(|l| l.key.point.get(axis).and_then(Value::as_f64)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    /// Returns a metric over these runs.
    #[must_use]
    pub fn metric(&self, metric: impl Fn(&Metrics) -> f64) -> Option<Interval> {
        interval(&self.0.iter().map(|l| metric(&l.metrics)).collect::<Vec<f64>>())
    }

    /// Returns a metric of every router along an axis.
    #[must_use]
    pub fn series(&self, axis: &str, metric: impl Fn(&Metrics) -> f64) -> Vec<Series> {
        let along = |router: String| {
            let runs = self.router(&router);
            let points = runs
                .places(axis)
                .into_iter()
                .filter_map(|x| Some(Point { x, y: runs.at(axis, &x.into()).metric(&metric)? }))
                .collect();
            Series { router, points }
        };
        self.routers().into_iter().map(along).collect()
    }

    /// Returns where a router's requests went, along an axis, and which met their target.
    #[must_use]
    pub fn composition(&self, axis: &str, router: &str) -> Vec<Composition> {
        let runs = self.router(router);
        let at_place = |x: f64| {
            let here = runs.at(axis, &x.into());
            let n = here.0.len() as f64;
            let mut parts: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
            for line in &here.0 {
                for (model, share) in &line.metrics.model_share {
                    let met = line.metrics.model_attainment.get(model).copied().unwrap_or(0.0);
                    let part = parts.entry(model).or_default();
                    part.0 += share * met / n;
                    part.1 += share * (1.0 - met) / n;
                }
            }
            let parts =
                parts.into_iter().map(|(model, (met, missed))| (model.to_owned(), met, missed)).collect();
            Some(Composition { x, parts, attainment: here.metric(|m| m.attainment)? })
        };
        runs.places(axis).into_iter().filter_map(at_place).collect()
    }
}
