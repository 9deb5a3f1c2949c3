//! Figures of all routers along arrival rates: 1, 8, 10 and 18.

use serde_json::{Value, json};

use super::{inputs::Inputs, look};
use crate::{
    draw::{Axis, Bar, Key, Mark, Panel, Picture, Shape, Spread},
    lab::{
        Metrics, RunLine,
        figures::{Composition, Point, Runs, Series},
    },
};

/// The axis of arrival rates.
pub(super) const RATE: &str = "arrivals.options.rate_qps";
/// The axis of burstiness.
pub(super) const RATIO: &str = "arrivals.options.ratio";
/// The routers of figure 1.
const COMPOSED: [&str; 4] = ["bear", "shortest-queue", "latency-agnostic", "round-robin"];
const RATE_LABEL: &str = "Arrival rate, requests/s";
const UTILITY_LABEL: &str = "OnTimeUtility";

/// Figure 1.
pub(super) fn composition(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "poisson");
    let all: Vec<(&str, Vec<Composition>)> =
        COMPOSED.iter().map(|router| (*router, runs.composition(RATE, router))).collect();
    let all: Vec<_> = all.into_iter().filter(|(_, places)| !places.is_empty()).collect();
    let parts = all.iter().flat_map(|(_, places)| places).flat_map(|place| &place.parts);
    let models = look::by_size(parts.map(|(model, ..)| model));
    let panels: Vec<Panel> = all.iter().map(|(router, places)| composed(router, places, &models)).collect();
    let mut legend = look::model_keys(&models);
    legend.push(Key { label: "missed its TTFT target".into(), ink: (90, 96, 104), shape: Shape::Hatched });
    (!panels.is_empty()).then(|| Picture {
        title: "Which models serve, and which requests miss their target".into(),
        subtitle: format!("Poisson arrivals, mean over {}", seeds(&runs)),
        legend,
        panels,
        columns: 2,
        panel_size: (470, 300),
    })
}

fn composed(router: &str, places: &[Composition], models: &[String]) -> Panel {
    let mut bars = Vec::new();
    for (i, place) in places.iter().enumerate() {
        let x = (i as f64 - 0.33, i as f64 + 0.33);
        let mut base = 0.0;
        for (m, model) in models.iter().enumerate() {
            let (met, missed) =
                place.parts.iter().find(|(name, ..)| name == model).map_or((0.0, 0.0), |p| (p.1, p.2));
            bars.push(Bar { x, y: (base, base + met), ink: look::model(m), hatched: false });
            bars.push(Bar { x, y: (base + met, base + met + missed), ink: look::model(m), hatched: true });
            base += met + missed;
        }
    }
    let met = |place: Option<&Composition>| place.map_or(0.0, |p| 100.0 * p.attainment.mean);
    let ticks = places.iter().enumerate().map(|(i, p)| (i as f64, format!("{}", p.x))).collect();
    Panel {
        title: format!("{router}: {:.0}% met, then {:.0}%", met(places.first()), met(places.last())),
        x: Axis {
            label: RATE_LABEL.into(),
            ticks,
            range: Some((-0.55, places.len() as f64 - 0.45)),
            no_grid: true,
            ..Axis::default()
        },
        y: Axis {
            label: "Share of requests".into(),
            range: Some((0.0, 1.0)),
            percent: true,
            ticks: [0.0, 0.25, 0.5, 0.75, 1.0].map(|v| (v, format!("{:.0}%", v * 100.0))).into(),
            ..Axis::default()
        },
        marks: vec![Mark::Bars(bars)],
    }
}

/// Figure 8.
pub(super) fn utility_by_rate(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "poisson");
    let panel = lines(&runs, |m| m.on_time_utility, UTILITY_LABEL, "")?;
    Some(wide("Utility of answers that come in time, by arrival rate", &runs, vec![panel]))
}

/// Figure 18.
pub(super) fn attainment_by_rate(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "poisson");
    let mut panel = lines(&runs, |m| m.attainment, "Requests within their TTFT target", "")?;
    panel.y.percent = true;
    panel.y.range = Some((0.0, 1.0));
    Some(wide("Requests that meet their TTFT target, by arrival rate", &runs, vec![panel]))
}

/// Figure 10.
pub(super) fn utility_by_burst(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "bursty");
    let panels: Vec<Panel> = runs
        .places(RATIO)
        .into_iter()
        .filter_map(|ratio| {
            let title = format!("High state {ratio} times the low one");
            lines(&runs.at(RATIO, &json!(ratio)), |m| m.on_time_utility, UTILITY_LABEL, &title)
        })
        .collect();
    let picture = wide("Utility of answers that come in time, under bursts", &runs, panels);
    let shared = shared_range(&picture.panels);
    (!picture.panels.is_empty()).then(|| {
        let mut picture = Picture { panel_size: (500, 440), columns: 2, ..picture };
        for panel in &mut picture.panels {
            panel.y.range = shared;
        }
        picture
    })
}

/// Returns one range for the values of several panels.
fn shared_range(panels: &[Panel]) -> Option<(f64, f64)> {
    let values = panels.iter().flat_map(|p| &p.marks).flat_map(|mark| match mark {
        Mark::Line { points, .. } => points.iter().flat_map(|p| [p.low, p.high]).collect(),
        _ => Vec::new(),
    });
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v: f64| (low.min(v), high.max(v)));
    let margin = 0.05 * (high - low);
    (low < high).then_some((if low >= 0.0 { (low - margin).max(0.0) } else { low - margin }, high + margin))
}

fn lines(runs: &Runs<'_>, metric: fn(&Metrics) -> f64, label: &str, title: &str) -> Option<Panel> {
    let mut series = runs.series(RATE, metric);
    series.retain(|s| !s.points.is_empty());
    // The strongest is drawn last, over the others.
    series.sort_by_key(|s| std::cmp::Reverse(look::rank(&s.router)));
    let rates = runs.places(RATE);
    let pad = rates.last()? - rates.first()?;
    let pad = if pad > 0.0 { 0.04 * pad } else { 0.5 };
    Some(Panel {
        title: title.into(),
        x: Axis {
            label: RATE_LABEL.into(),
            ticks: rates.iter().map(|rate| (*rate, format!("{rate}"))).collect(),
            range: Some((rates.first()? - pad, rates.last()? + pad)),
            ..Axis::default()
        },
        y: Axis { label: label.into(), ..Axis::default() },
        marks: series.iter().map(line).collect(),
    })
}

/// Draws a router's values as its line.
pub(super) fn line(series: &Series) -> Mark {
    let look = look::router(&series.router);
    Mark::Line {
        points: series.points.iter().map(spread).collect(),
        ink: look.ink,
        shape: look.shape,
        width: look.width,
        label: series.router.clone(),
    }
}

pub(super) fn spread(point: &Point) -> Spread {
    Spread { x: point.x, low: point.y.low, value: point.y.mean, high: point.y.high }
}

fn wide(title: &str, runs: &Runs<'_>, panels: Vec<Panel>) -> Picture {
    Picture {
        title: title.into(),
        subtitle: format!("Bands: 95% intervals over {}", seeds(runs)),
        legend: Vec::new(),
        panels,
        columns: 1,
        panel_size: (900, 500),
    }
}

/// Says at which rate requests came, where all runs have one.
pub(super) fn rate(runs: &Runs<'_>) -> String {
    let rate = |line: &&RunLine| line.setting.arrivals.options.get("rate_qps").and_then(Value::as_f64);
    let mut rates: Vec<f64> = runs.lines().iter().filter_map(rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    match rates.as_slice() {
        [rate] => format!("{rate} requests/s"),
        _ => String::from("several rates"),
    }
}

/// Says how many seeds there are.
pub(super) fn seeds(runs: &Runs<'_>) -> String {
    match runs.seeds().len() {
        1 => String::from("1 seed"),
        n => format!("{n} seeds"),
    }
}
