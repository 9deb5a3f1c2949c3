//! The paper's numbers, as its abstract, its section 5 and its captions state them, and ours beside them.

use serde_json::json;

use super::{
    gains::{DELAY, ROUTER_COUNT},
    inputs::Inputs,
    latency::SMALLEST,
    look::{self, PAPER_BASELINES},
    routing::{RATE, RATIO},
};
use crate::lab::{
    Interval,
    figures::{Margin, Rivals, Runs, estimates, interval, margins, mean_margin, relative},
};

/// The joint routers that the paper's first margin is over.
pub(super) const JOINT: [&str; 2] = ["route-balance", "score"];

/// One number of the paper.
pub(super) struct Row {
    /// The figure that shows it.
    pub(super) figure: u32,
    /// Its name among the figure's rows.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) what: &'static str,
    /// What the paper says.
    pub(super) paper: &'static str,
    /// The same as a number, where it is one.
    pub(super) value: Option<f64>,
    /// Ours; absent: no runs.
    pub(super) ours: fn(&Inputs) -> Option<Interval>,
}

impl Row {
    /// Returns its name in notes, such as `figure-08/best-baseline`.
    pub(super) fn id(&self) -> String {
        format!("figure-{:02}/{}", self.figure, self.name)
    }
}

/// Every number, in the order of figures. All are shares, shown in percent.
pub(super) const ROWS: &[Row] = &[
    Row {
        figure: 1,
        name: "bear-small-model",
        what: "More of BEAR's requests served by the smallest model at 8.9 than at 6 requests/s",
        paper: "grows",
        value: None,
        ours: |inputs| small_share_growth(inputs, "bear"),
    },
    Row {
        figure: 1,
        name: "shortest-queue-small-model",
        what: "Requests of shortest-queue served by the smallest model at 8.9 requests/s",
        paper: "most",
        value: None,
        ours: |inputs| small_share(inputs, "shortest-queue", 8.9),
    },
    Row {
        figure: 1,
        name: "latency-agnostic-constant",
        what: "The same growth for latency-agnostic",
        paper: "about 0",
        value: None,
        ours: |inputs| small_share_growth(inputs, "latency-agnostic"),
    },
    Row {
        figure: 4,
        name: "bea",
        what: "Error of BEA's TTFT (MAPE), Qwen3-0.6B",
        paper: "about 5%",
        value: Some(0.05),
        ours: |inputs| mape(inputs, "bea"),
    },
    Row {
        figure: 4,
        name: "prefill-throughput",
        what: "Error of the prefill-throughput TTFT (MAPE), Qwen3-0.6B",
        paper: "85%",
        value: Some(0.85),
        ours: |inputs| mape(inputs, "prefill-throughput"),
    },
    Row {
        figure: 5,
        name: "batch-time",
        what: "Error of a batch's time by eq. 12 (MAPE), Qwen3-0.6B",
        paper: "about 4%",
        value: Some(0.04),
        ours: |inputs| inputs.batches.mape().map(single),
    },
    Row {
        figure: 8,
        name: "joint-mean",
        what: "BEAR over RouteBalance and SCORE, mean over rates",
        paper: "+63%",
        value: Some(0.63),
        ours: |inputs| mean_margin(&joint(inputs)),
    },
    Row {
        figure: 8,
        name: "joint-at-8.9",
        what: "BEAR over RouteBalance and SCORE at 8.9 requests/s",
        paper: "+74%",
        value: Some(0.74),
        ours: |inputs| joint(inputs).iter().find(|m| near(m.x, 8.9)).and_then(|m| m.lead),
    },
    Row {
        figure: 8,
        name: "best-baseline",
        what: "BEAR over the best of the paper's baselines at each rate, mean over rates",
        paper: "+30.5%",
        value: Some(0.305),
        ours: |inputs| mean_margin(&best_of_paper(inputs)),
    },
    Row {
        figure: 10,
        name: "least-lead-r3",
        what: "BEAR's least lead over the best of the paper's baselines under bursts, r = 3",
        paper: "above 0",
        value: None,
        ours: |inputs| least_under_bursts(inputs, 3.0),
    },
    Row {
        figure: 10,
        name: "least-lead-r6",
        what: "The same, r = 6",
        paper: "above 0",
        value: None,
        ours: |inputs| least_under_bursts(inputs, 6.0),
    },
    Row {
        figure: 14,
        name: "at-400-ms",
        what: "OnTimeUtility lost to snapshots 400 ms late, one router",
        paper: "about 0",
        value: None,
        ours: |inputs| lost(inputs, 1.0, 400.0),
    },
    Row {
        figure: 14,
        name: "at-1000-ms",
        what: "OnTimeUtility lost to snapshots 1000 ms late, one router",
        paper: "7%",
        value: Some(0.07),
        ours: |inputs| lost(inputs, 1.0, 1000.0),
    },
    Row {
        figure: 14,
        name: "four-routers-at-1000-ms",
        what: "The same of four routers with a quarter of the traffic each, against themselves with fresh ones",
        paper: "7%",
        value: Some(0.07),
        ours: |inputs| lost(inputs, 4.0, 1000.0),
    },
    Row {
        figure: 14,
        name: "four-routers-for-one",
        what: "OnTimeUtility that four routers lose against one, fresh snapshots",
        paper: "not shown",
        value: None,
        ours: four_for_one,
    },
    Row {
        figure: 16,
        name: "bea-lead-at-6",
        what: "BEA over prefill throughput as BEAR's estimator, 6 requests/s",
        paper: "about 0",
        value: None,
        ours: |inputs| lead_of_bea(inputs, 6.0),
    },
    Row {
        figure: 16,
        name: "bea-lead-at-8.9",
        what: "The same at 8.9 requests/s",
        paper: "clearly above 0",
        value: None,
        ours: |inputs| lead_of_bea(inputs, 8.9),
    },
    Row {
        figure: 17,
        name: "least-lead",
        what: "BEAR's least lead over latency-agnostic over all λ",
        paper: "above 0",
        value: None,
        ours: |inputs| {
            let runs = Runs::of(&inputs.lines, "lambda");
            least(&margins(&runs, "lambda_per_usd", "bear", Rivals::Each(&["latency-agnostic"])))
        },
    },
    Row {
        figure: 18,
        name: "attainment-at-8.9",
        what: "BEAR's requests within their target at 8.9 requests/s",
        paper: "high",
        value: None,
        ours: |inputs| {
            Runs::of(&inputs.lines, "poisson").router("bear").at(RATE, &json!(8.9)).metric(|m| m.attainment)
        },
    },
];

/// Returns BEAR's lead over both joint routers at each rate.
pub(super) fn joint(inputs: &Inputs) -> Vec<Margin> {
    margins(&Runs::of(&inputs.lines, "poisson"), RATE, "bear", Rivals::Each(&JOINT))
}

/// Returns BEAR's lead over the best of the paper's baselines at each rate.
pub(super) fn best_of_paper(inputs: &Inputs) -> Vec<Margin> {
    best_of(&Runs::of(&inputs.lines, "poisson"), RATE, true)
}

/// Returns BEAR's lead over the best baseline, of the paper's or of all, along an axis.
pub(super) fn best_of(runs: &Runs<'_>, axis: &str, paper_only: bool) -> Vec<Margin> {
    let mut labels = runs.routers();
    labels.retain(|l| look::is_baseline(l) && (!paper_only || PAPER_BASELINES.contains(&l.as_str())));
    margins(runs, axis, "bear", Rivals::BestOf(&labels))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn single(value: f64) -> Interval {
    Interval { mean: value, low: value, high: value }
}

fn mape(inputs: &Inputs, estimator: &str) -> Option<Interval> {
    estimates(&Runs::of(&inputs.lines, "requests"), estimator, SMALLEST).mape().map(single)
}

fn least(margins: &[Margin]) -> Option<Interval> {
    margins.iter().filter_map(|m| m.lead).min_by(|a, b| a.mean.total_cmp(&b.mean))
}

fn small_share(inputs: &Inputs, router: &str, rate: f64) -> Option<Interval> {
    let runs = Runs::of(&inputs.lines, "poisson").router(router).at(RATE, &json!(rate));
    runs.metric(|m| m.model_share.get(SMALLEST).copied().unwrap_or(0.0))
}

/// The growth from 6 to 8.9 requests/s, seed by seed.
fn small_share_growth(inputs: &Inputs, router: &str) -> Option<Interval> {
    let runs = Runs::of(&inputs.lines, "poisson").router(router);
    let share = |rate: f64, seed: u64| {
        let here = runs.at(RATE, &json!(rate));
        let run = here.lines().iter().find(|l| l.key.seed == seed)?;
        Some(run.metrics.model_share.get(SMALLEST).copied().unwrap_or(0.0))
    };
    let grown = runs.seeds().into_iter().filter_map(|seed| Some(share(8.9, seed)? - share(6.0, seed)?));
    interval(&grown.collect::<Vec<f64>>())
}

fn least_under_bursts(inputs: &Inputs, ratio: f64) -> Option<Interval> {
    let runs = Runs::of(&inputs.lines, "bursty");
    runs.places(RATIO).iter().any(|r| near(*r, ratio)).then_some(())?;
    least(&best_of(&runs.at(RATIO, &json!(ratio)), RATE, true))
}

fn lost(inputs: &Inputs, count: f64, delay_ms: f64) -> Option<Interval> {
    let runs = Runs::of(&inputs.lines, "staleness").router("bear").at(ROUTER_COUNT, &json!(count));
    let kept = relative(&runs, DELAY, 0.0, |m| m.on_time_utility);
    Some(loss(kept.iter().find(|p| near(p.x, delay_ms))?.y))
}

/// What splitting the traffic over four routers costs by itself.
fn four_for_one(inputs: &Inputs) -> Option<Interval> {
    let runs = Runs::of(&inputs.lines, "staleness").router("bear").at(DELAY, &json!(0.0));
    let kept = relative(&runs, ROUTER_COUNT, 1.0, |m| m.on_time_utility);
    Some(loss(kept.iter().find(|p| near(p.x, 4.0))?.y))
}

fn loss(kept: Interval) -> Interval {
    Interval { mean: 1.0 - kept.mean, low: 1.0 - kept.high, high: 1.0 - kept.low }
}

fn lead_of_bea(inputs: &Inputs, rate: f64) -> Option<Interval> {
    let runs = Runs::of(&inputs.lines, "estimator");
    let found = margins(&runs, RATE, "bear", Rivals::Each(&["bear-prefill"]));
    found.iter().find(|m| near(m.x, rate)).and_then(|m| m.lead)
}
