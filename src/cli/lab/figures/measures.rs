//! The page's table of everything else that is measured, router by router.

use serde_json::json;

use super::{
    inputs::Inputs,
    look,
    routing::{RATE, rate},
    tables::{percent, plain, table, with_ends},
};
use crate::{
    draw::page::{Block, Cell},
    lab::{Metrics, figures::Runs},
};

/// One column: its head, and a metric with how it is written.
type Column = (&'static str, fn(&Metrics) -> f64, fn(f64) -> String);

const COLUMNS: &[Column] = &[
    ("Regret", |m| m.best_utility - m.on_time_utility, plain),
    ("In time", |m| m.attainment, percent),
    ("Mean utility", |m| m.mean_utility, plain),
    ("Negative", |m| m.negative_utility_share, percent),
    ("TTFT p50, ms", |m| m.ttft_s.p50, millis),
    ("p95", |m| m.ttft_s.p95, millis),
    ("p99", |m| m.ttft_s.p99, millis),
    ("TPOT p50, ms", |m| m.tpot_s.p50, millis),
    ("Answer p95, s", |m| m.e2e_s.p95, |s| format!("{s:.1}")),
    ("Answers/s", |m| m.answers_per_s, |n| format!("{n:.2}")),
    ("Cached", |m| m.cache_hit_rate, percent),
];

/// Builds the table at the last rate but one of figure 8.
pub(super) fn by_router(inputs: &Inputs) -> Block {
    let poisson = Runs::of(&inputs.lines, "poisson");
    let rates = poisson.places(RATE);
    let place = rates.get(rates.len().saturating_sub(2)).copied().unwrap_or_default();
    let runs = poisson.at(RATE, &json!(place));
    let mut routers = runs.routers();
    routers.sort_by_key(|router| look::rank(router));
    let models = look::by_size(runs.lines().iter().flat_map(|line| line.metrics.model_share.keys()));
    let rows = routers.iter().map(|router| {
        let runs = runs.router(router);
        let utility = runs.metric(|m| m.on_time_utility);
        let mut row =
            vec![Cell::words(router.clone()), Cell::number(utility.map_or_else(String::new, with_ends))];
        row.extend(COLUMNS.iter().map(|(_, metric, write)| {
            Cell::number(runs.metric(metric).map_or_else(String::new, |found| write(found.mean)))
        }));
        row.extend(models.iter().map(|model| {
            let share = runs.metric(|m| m.model_share.get(model).copied().unwrap_or(0.0));
            Cell::number(share.map_or_else(String::new, |share| percent(share.mean)))
        }));
        let options =
            runs.lines().first().map(|line| &line.key.options).filter(|options| !options.is_empty());
        row.push(Cell::words(options.map_or_else(String::new, |o| json!(o).to_string().replace(',', ", "))));
        row
    });
    let mut head = vec!["Router", "OnTimeUtility"];
    head.extend(COLUMNS.iter().map(|(head, ..)| *head));
    head.extend(models.iter().map(String::as_str));
    head.push("Options");
    table(
        &format!(
            "Every router under Poisson arrivals, {}. Regret is what OnTimeUtility lacks of the best model's utility \
             for each request, as one would choose who knows every score and every length and meets no queue; \
             negative are answers that cost more than they are worth. Shares of the models follow.",
            rate(&runs)
        ),
        &head,
        rows.collect(),
    )
}

fn millis(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e3)
}
