//! Figures of estimates against truth: 4, 5 and 19.

use super::{inputs::Inputs, look, routing::rate};
use crate::{
    calibrate::Sample,
    domain::BatchTimeCoefficients,
    draw::{Axis, Ink, Key, Mark, Panel, Picture, Scale, Shape},
    engine::{ATTOSECONDS_PER_S, BatchTime},
    lab::figures::{Belief, Pairs, RealisedKind, Runs, beliefs, estimates},
    truth::{Profile, ProfileEntry, TruthError, fit::record_load},
};

/// The model of figures 4 and 5.
pub(super) const SMALLEST: &str = "qwen3-0.6b";
/// Its engine.
const PROFILE: &str = "qwen3-0.6b-h100";
/// Most points of a panel: more hide each other.
const MOST_POINTS: usize = 1500;
/// Points of one model in one small panel.
const MOST_SMALL: usize = 350;

/// What each router's own estimate is of, as its policy defines it.
const KINDS: [(&str, RealisedKind); 8] = [
    ("bear", RealisedKind::FirstToken),
    ("bear-prefill", RealisedKind::FirstToken),
    ("route-balance", RealisedKind::WholeAnswer),
    ("score", RealisedKind::WholeAnswer),
    ("lmdeploy", RealisedKind::WholeAnswer),
    ("lmdeploy-observed", RealisedKind::WholeAnswer),
    ("vllm-sr", RealisedKind::FirstToken),
    ("block", RealisedKind::WholeAnswer),
];

/// Returns the smallest model's batch times under a load that its fit has not seen, and what eq. 12 says.
///
/// # Errors
/// The built-in profile cannot run.
pub(super) fn batches() -> Result<Pairs, TruthError> {
    let profile = Profile::built_in(PROFILE)?;
    let Some(entry) = ProfileEntry::find(PROFILE) else { return Ok(Pairs::default()) };
    let fit = entry.parse_fit()?;
    let records = record_load(&profile, fit.seed + 1)?;
    let samples = records.iter().map(|r| Sample { work: r.work, duration_s: r.duration_s });
    Ok(Pairs { points: samples.map(|s| (s.duration_s, predicted_s(&fit.batch_time, &s))).collect() })
}

fn predicted_s(coefficients: &BatchTimeCoefficients, sample: &Sample) -> f64 {
    BatchTime::from(coefficients).duration(&sample.work) as f64 / ATTOSECONDS_PER_S
}

/// Figure 4.
pub(super) fn ttft_estimates(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "requests");
    let both = [("prefill-throughput", "Prefill throughput"), ("bea", "BEA")].map(|(estimator, title)| {
        (
            estimates(&runs, estimator, SMALLEST),
            title,
            look::router(if estimator == "bea" { "bear" } else { "bear-prefill" }).ink,
        )
    });
    let range = range(both.iter().map(|(pairs, ..)| pairs))?;
    let panels = both
        .iter()
        .map(|(pairs, title, ink)| {
            let dots = vec![(pairs.thinned(MOST_POINTS), *ink)];
            scatter(
                &format!("{title}: MAPE {}", percent(pairs.mape())),
                dots,
                range,
                ("TTFT, s", "Estimated TTFT, s"),
            )
        })
        .collect();
    Some(Picture {
        title: "Estimates of time to first token against what came".into(),
        subtitle: format!(
            "{SMALLEST}, every router's requests to it, {}; points beyond an axis lie on its edge",
            rate(&runs)
        ),
        legend: Vec::new(),
        panels,
        columns: 2,
        panel_size: (460, 430),
    })
}

/// Figure 5.
pub(super) fn batch_times(inputs: &Inputs) -> Option<Picture> {
    let pairs = &inputs.batches;
    let range = range([pairs].into_iter())?;
    let dots = vec![(pairs.thinned(MOST_POINTS), look::router("bear").ink)];
    let labels = ("Batch time, s", "Batch time by eq. 12, s");
    Some(Picture {
        title: format!("Batch times: MAPE {}", percent(pairs.mape())),
        subtitle: format!("{PROFILE}, one to 128 clients{}", noise().unwrap_or_default()),
        legend: Vec::new(),
        panels: vec![scatter("", dots, range, labels)],
        columns: 1,
        panel_size: (560, 480),
    })
}

/// Says what error the engine's own noise makes: the mean of |e − 1| where ln e is normal, to first order.
fn noise() -> Option<String> {
    let sigma = Profile::built_in(PROFILE).ok()?.step_noise_sigma;
    let error = sigma * std::f64::consts::FRAC_2_PI.sqrt();
    Some(format!("; its own noise alone makes {} of error", percent(Some(error))))
}

/// Figure 19.
pub(super) fn beliefs_by_router(inputs: &Inputs) -> Option<Picture> {
    let runs = Runs::of(&inputs.lines, "requests");
    let mut found = beliefs(&runs, &KINDS);
    if !found.iter().any(|belief| belief.router == "bear-prefill") {
        found.extend(prefill(&runs));
    }
    found.sort_by_key(|belief| look::rank(&belief.router));
    let models = look::by_size(found.iter().flat_map(|b| b.models.keys()));
    let panels: Vec<Panel> = found.iter().filter_map(|belief| believed(belief, &models)).collect();
    let legend = models
        .iter()
        .enumerate()
        .map(|(i, name)| Key { label: name.clone(), ink: look::model(i), shape: Shape::Circle })
        .collect();
    (!panels.is_empty()).then(|| Picture {
        title: "What each router believed, against what came".into(),
        subtitle: format!(
            "{}; seconds, log scales; the median error is over all models; points beyond an axis lie on its edge",
            rate(&runs)
        ),
        legend,
        panels,
        columns: 3,
        panel_size: (330, 330),
    })
}

/// The prefill-throughput estimate of what BEAR chose.
fn prefill(runs: &Runs<'_>) -> Option<Belief> {
    let runs = runs.router("bear");
    let models = look::by_size(runs.lines().iter().flat_map(|l| l.requests.iter().map(|r| &r.model)));
    let pairs = models.into_iter().map(|m| (m.clone(), estimates(&runs, "prefill-throughput", &m)));
    let models: std::collections::BTreeMap<String, Pairs> =
        pairs.filter(|(_, p)| !p.points.is_empty()).collect();
    let kind = RealisedKind::FirstToken;
    (!models.is_empty()).then(|| Belief { router: "bear-prefill".into(), kind, models })
}

fn believed(belief: &Belief, models: &[String]) -> Option<Panel> {
    let all = Pairs { points: belief.models.values().flat_map(|p| p.points.clone()).collect() };
    // Far estimates would squeeze the rest: the ends hold all but a hundredth of them at either side.
    let range = range([&all].into_iter())?;
    let mut dots = Vec::new();
    for (i, model) in models.iter().enumerate() {
        if let Some(pairs) = belief.models.get(model) {
            dots.push((pairs.thinned(MOST_SMALL), look::model(i)));
        }
    }
    let name = match belief.router.as_str() {
        "bear" => "bear (BEA)",
        "bear-prefill" => "prefill throughput",
        name => name,
    };
    let labels = match belief.kind {
        RealisedKind::FirstToken => ("TTFT, s", "Believed, s"),
        RealisedKind::WholeAnswer => ("Whole answer, s", "Believed, s"),
    };
    let title = format!("{name}: median error {}", percent(all.median_error()));
    Some(scatter(&title, dots, range, labels))
}

type Dots = Vec<(f64, f64)>;

fn scatter(title: &str, dots: Vec<(Dots, Ink)>, range: (f64, f64), labels: (&str, &str)) -> Panel {
    let axis =
        |label: &str| Axis { label: label.into(), scale: Scale::Log, range: Some(range), ..Axis::default() };
    let mut marks = vec![Mark::Identity];
    // A log axis has no place for an estimate of nothing; its error counts all the same.
    let drawn = |(_, said): &(f64, f64)| *said > 0.0;
    marks.extend(
        dots.into_iter()
            .map(|(points, ink)| Mark::Dots { points: points.into_iter().filter(drawn).collect(), ink }),
    );
    Panel { title: title.into(), x: axis(labels.0), y: axis(labels.1), marks }
}

/// Returns the ends of both axes: all but the farthest 0.2% of values at either side lie between them.
fn range<'a>(pairs: impl Iterator<Item = &'a Pairs>) -> Option<(f64, f64)> {
    let values = pairs.flat_map(|p| p.points.iter().flat_map(|(a, b)| [*a, *b]));
    let mut values: Vec<f64> = values.filter(|v| *v > 0.0).collect();
    values.sort_by(f64::total_cmp);
    let skip = values.len() / 500;
    let (low, high) = (values.get(skip)?, values.get(values.len() - 1 - skip)?);
    Some((low / 1.25, high * 1.25))
}

/// Writes a share as a percentage.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || "unknown".into(),
        |s| if s < 0.1 { format!("{:.1}%", s * 100.0) } else { format!("{:.0}%", s * 100.0) },
    )
}
