//! How far one router is ahead of others: ratios of OnTimeUtility, seed by seed, so that the luck of the
//! traffic cancels.

use serde_json::Value;

use super::{Point, Runs, interval};
use crate::lab::{Interval, Metrics};

/// A router's lead over another at one place of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Margin {
    /// The place.
    pub x: f64,
    /// Who is compared with: a label, or several joined by ` + `.
    pub over: String,
    /// Mean over seeds of the ratio less 1, with its interval.
    pub lead: Interval,
    /// The ratios less 1, seed by seed.
    pub by_seed: Vec<(u64, f64)>,
}

/// Whom a router is compared with at each place.
#[derive(Clone, Copy, Debug)]
pub enum Rivals<'a> {
    /// Each of these: the lead is the mean of the leads over them.
    Each(&'a [&'a str]),
    /// The one of these with the most mean utility there.
    BestOf(&'a [String]),
}

/// Returns the lead of a router at every place of an axis where it and its rivals ran with the same seeds.
#[must_use]
pub fn margins(runs: &Runs<'_>, axis: &str, router: &str, rivals: Rivals<'_>) -> Vec<Margin> {
    let at_place = |x: f64| {
        let here = runs.at(axis, &Value::from(x));
        let labels: Vec<&str> = match rivals {
            Rivals::Each(labels) => labels.to_vec(),
            Rivals::BestOf(labels) => vec![best(&here, labels)?],
        };
        let mut by_seed = Vec::new();
        for seed in here.seeds() {
            let own = utility(&here, router, seed);
            let leads: Option<Vec<f64>> = labels
                .iter()
                .map(|label| {
                    let other = utility(&here, label, seed).filter(|u| *u > 0.0)?;
                    Some(own? / other - 1.0)
                })
                .collect();
            if let Some(leads) = leads.filter(|l| !l.is_empty()) {
                by_seed.push((seed, leads.iter().sum::<f64>() / leads.len() as f64));
            }
        }
        let lead = interval(&by_seed.iter().map(|(_, lead)| *lead).collect::<Vec<f64>>())?;
        Some(Margin { x, over: labels.join(" + "), lead, by_seed })
    };
    runs.places(axis).into_iter().filter_map(at_place).collect()
}

/// Returns the mean lead over the places, its interval over seeds that ran at all of them.
#[must_use]
pub fn mean_margin(margins: &[Margin]) -> Option<Interval> {
    let seeds = margins.first()?.by_seed.iter().map(|(seed, _)| *seed);
    let means: Vec<f64> = seeds
        .filter_map(|seed| {
            let leads: Option<Vec<f64>> = margins
                .iter()
                .map(|m| m.by_seed.iter().find(|(s, _)| *s == seed).map(|(_, lead)| *lead))
                .collect();
            leads.map(|leads| leads.iter().sum::<f64>() / leads.len() as f64)
        })
        .collect();
    interval(&means)
}

fn best<'a>(here: &Runs<'_>, labels: &'a [String]) -> Option<&'a str> {
    labels
        .iter()
        .filter_map(|label| {
            let mean = here.router(label).metric(|m| m.on_time_utility)?.mean;
            Some((label.as_str(), mean))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(label, _)| label)
}

fn utility(here: &Runs<'_>, router: &str, seed: u64) -> Option<f64> {
    let run = here.lines().iter().find(|l| l.key.router == router && l.key.seed == seed)?;
    Some(run.metrics.on_time_utility)
}

/// Returns a metric of these runs along an axis, over its value at one place of it, seed by seed.
#[must_use]
pub fn relative(runs: &Runs<'_>, axis: &str, base: f64, metric: impl Fn(&Metrics) -> f64) -> Vec<Point> {
    let fresh = runs.at(axis, &Value::from(base));
    let before = |seed: u64| fresh.lines().iter().find(|l| l.key.seed == seed).map(|l| metric(&l.metrics));
    let at_place = |x: f64| {
        let ratios: Vec<f64> = runs
            .at(axis, &Value::from(x))
            .lines()
            .iter()
            .filter_map(|l| Some(metric(&l.metrics) / before(l.key.seed).filter(|v| *v > 0.0)?))
            .collect();
        Some(Point { x, y: interval(&ratios)? })
    };
    runs.places(axis).into_iter().filter_map(at_place).collect()
}
