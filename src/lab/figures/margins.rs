//! How far one router is ahead of others: ratios and differences of OnTimeUtility, seed by seed, so that the
//! luck of the traffic cancels.

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
    /// Mean over seeds of the ratio less 1, with its interval; absent where a rival's utility is not above 0 under
    /// some seed, and a ratio would say nothing.
    pub lead: Option<Interval>,
    /// Mean over seeds of the difference, with its interval.
    pub difference: Interval,
    /// The ratios less 1, seed by seed; none where there is no lead.
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
        let pairs: Vec<(u64, f64, Vec<f64>)> = here
            .seeds()
            .into_iter()
            .filter_map(|seed| {
                let others: Option<Vec<f64>> =
                    labels.iter().map(|label| utility(&here, label, seed)).collect();
                Some((seed, utility(&here, router, seed)?, others.filter(|others| !others.is_empty())?))
            })
            .collect();
        let mean = |values: &[f64], of: &dyn Fn(f64) -> f64| {
            values.iter().map(|v| of(*v)).sum::<f64>() / values.len() as f64
        };
        let differences: Vec<f64> =
            pairs.iter().map(|(_, own, others)| mean(others, &|other| own - other)).collect();
        let positive = pairs.iter().all(|(.., others)| others.iter().all(|other| *other > 0.0));
        let by_seed: Vec<(u64, f64)> = pairs
            .iter()
            .filter(|_| positive)
            .map(|(seed, own, others)| (*seed, mean(others, &|other| own / other - 1.0)))
            .collect();
        let lead = interval(&by_seed.iter().map(|(_, lead)| *lead).collect::<Vec<f64>>());
        let difference = interval(&differences)?;
        Some(Margin { x, over: labels.join(" + "), lead, difference, by_seed })
    };
    runs.places(axis).into_iter().filter_map(at_place).collect()
}

/// Returns the mean lead over the places, its interval over seeds that ran at all of them; absent where a place
/// has no lead.
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
