//! Figures of BEAR's own knobs and parts: 9, 14, 16 and 17.

use serde_json::json;

use super::{
    inputs::Inputs,
    look,
    routing::{RATE, line, rate, seeds, spread},
};
use crate::{
    draw::{Axis, Mark, Panel, Picture, Scale, Shape, Spread},
    lab::{
        Interval,
        figures::{Runs, relative},
    },
};

/// The axis of snapshot delays.
pub(super) const DELAY: &str = "snapshots.delay_ms";
/// The axis of routers that share the pool.
pub(super) const ROUTER_COUNT: &str = "router_count";
const DELTA: &str = "delta_per_s";
/// The axis of λ.
pub(super) const LAMBDA: &str = "lambda_per_usd";
/// What the paper keeps at 1000 ms (figure 14).
const PAPER_KEPT: f64 = 0.93;

/// Figure 9.
pub(super) fn trade_off(inputs: &Inputs) -> Option<Picture> {
    let curve = Runs::of(&inputs.lines, "delta");
    let others = Runs::of(&inputs.lines, "delta-others");
    let lagrangian = curve.router("bear-lagrangian");
    let mut marks = Vec::new();
    let (mut path, mut names) = (Vec::new(), Vec::new());
    let look = look::router("bear-lagrangian");
    for delta in lagrangian.places(DELTA) {
        let here = lagrangian.at(DELTA, &json!(delta));
        let (x, y) = (here.metric(|m| m.ttft_s.mean)?, here.metric(|m| m.mean_utility)?);
        path.push(Spread { x: x.mean, low: y.mean, value: y.mean, high: y.mean });
        names.push(named(x, y, format!("δ = {delta}"), "bear-lagrangian"));
    }
    if !path.is_empty() {
        marks.push(Mark::Line {
            points: path,
            ink: look.ink,
            shape: look.shape,
            width: 2.5,
            label: String::new(),
        });
    }
    marks.extend(names);
    // Older grids hold the other routers among the curve's runs.
    for runs in [&others, &curve] {
        let mut routers = runs.routers();
        routers.retain(|router| router != "bear-lagrangian");
        routers.sort_by_key(|router| look::rank(router));
        for router in routers {
            let runs = runs.router(&router);
            marks.push(named(
                runs.metric(|m| m.ttft_s.mean)?,
                runs.metric(|m| m.mean_utility)?,
                router.clone(),
                &router,
            ));
        }
    }
    (!marks.is_empty()).then(|| Picture {
        title: "Utility against time to first token, as δ makes waiting dearer".into(),
        subtitle: format!("{}; bars: 95% intervals over {}", rate(&curve), seeds(&curve)),
        legend: Vec::new(),
        panels: vec![Panel {
            x: Axis { label: "Mean TTFT, seconds (log)".into(), scale: Scale::Log, ..Axis::default() },
            y: Axis { label: "Mean utility, late answers included".into(), ..Axis::default() },
            marks,
            ..Panel::default()
        }],
        columns: 1,
        panel_size: (900, 500),
    })
}

fn named(x: Interval, y: Interval, label: String, router: &str) -> Mark {
    let look = look::router(router);
    Mark::Named {
        x: (x.low.max(x.mean / 10.0), x.mean, x.high),
        y: (y.low, y.mean, y.high),
        label,
        ink: look.ink,
        shape: look.shape,
    }
}

/// Figure 14.
pub(super) fn staleness(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "staleness").router("bear");
    let delays = runs.places(DELAY);
    let place = |delay: f64| delays.iter().position(|d| (d - delay).abs() < 1e-9).map(|i| i as f64);
    let mut marks = Vec::new();
    for (i, count) in runs.places(ROUTER_COUNT).into_iter().enumerate() {
        let points =
            relative(&runs.at(ROUTER_COUNT, &json!(count)), DELAY, *delays.first()?, |m| m.on_time_utility);
        let points = points.iter().filter_map(|p| Some(Spread { x: place(p.x)?, ..spread(p) })).collect();
        let look = look::router(if i == 0 { "bear" } else { "bear-lagrangian" });
        marks.push(Mark::Line {
            points,
            ink: look.ink,
            shape: if i == 0 { Shape::Circle } else { Shape::Square },
            width: if i == 0 { 3.5 } else { 2.5 },
            label: if count > 1.0 { format!("{count} routers") } else { "1 router".into() },
        });
    }
    let last = place(1000.0);
    if let (false, Some(x)) = (marks.is_empty(), last) {
        let (label, kept) = ("paper at 1000 ms".into(), PAPER_KEPT);
        let (x, y, ink) = ((x, x, x), (kept, kept, kept), (110, 116, 124));
        marks.push(Mark::Named { x, y, label, ink, shape: Shape::Diamond });
    }
    (!marks.is_empty()).then(|| Picture {
        title: "What late snapshots cost".into(),
        subtitle: format!("{}; bands: 95% intervals over {}", rate(&runs), seeds(&runs)),
        legend: Vec::new(),
        panels: vec![Panel {
            x: Axis {
                label: "Snapshot delay, ms".into(),
                ticks: delays.iter().enumerate().map(|(i, d)| (i as f64, format!("{d}"))).collect(),
                range: Some((-0.2, delays.len() as f64 - 0.8)),
                ..Axis::default()
            },
            y: Axis {
                label: "OnTimeUtility over that of fresh snapshots".into(),
                percent: true,
                ..Axis::default()
            },
            marks,
            ..Panel::default()
        }],
        columns: 1,
        panel_size: (820, 400),
    })
}

/// Figure 16.
pub(super) fn estimators(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "estimator");
    let ticks = runs.places(RATE).iter().map(|rate| (*rate, format!("{rate}"))).collect();
    let x = Axis { label: "Arrival rate, requests/s".into(), ticks, ..Axis::default() };
    one_panel(&runs, RATE, x, "The same rule under two estimates of TTFT")
}

/// Figure 17.
pub(super) fn lambda(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "lambda");
    let places = runs.places(LAMBDA);
    let positive = places.iter().all(|v| *v > 0.0);
    let x = Axis {
        label: "λ, utility per USD".into(),
        scale: if positive { Scale::Log } else { Scale::Linear },
        ticks: places.iter().map(|v| (*v, format!("{v}"))).collect(),
        ..Axis::default()
    };
    one_panel(&runs, LAMBDA, x, "Utility of answers that come in time, as cost weighs more")
}

fn one_panel(runs: &Runs<'_>, axis: &str, x: Axis, title: &str) -> Option<Picture> {
    let mut series = runs.series(axis, |m| m.on_time_utility);
    series.retain(|s| !s.points.is_empty());
    series.sort_by_key(|s| std::cmp::Reverse(look::rank(&s.router)));
    let (places, log) = (runs.places(axis), x.scale == Scale::Log);
    let range = match (places.first(), places.last()) {
        (Some(a), Some(b)) if log => Some((a / 1.15, b * 1.15)),
        (Some(a), Some(b)) if a < b => Some((a - 0.04 * (b - a), b + 0.04 * (b - a))),
        _ => None,
    };
    (!series.is_empty()).then(|| Picture {
        title: title.into(),
        subtitle: format!("Bands: 95% intervals over {}", seeds(runs)),
        legend: Vec::new(),
        panels: vec![Panel {
            x: Axis { range, ..x },
            y: Axis { label: "OnTimeUtility".into(), ..Axis::default() },
            marks: series.iter().map(line).collect(),
            ..Panel::default()
        }],
        columns: 1,
        panel_size: (820, 400),
    })
}
