//! Figures of how long prompts and answers are: 12 and 13.

use super::{inputs::Inputs, look};
use crate::{
    draw::{Axis, Ink, Key, Mark, Panel, Picture, Scale, Shape},
    lab::figures::{self, Runs},
};

/// Bins a decade.
const BINS: i32 = 12;
/// The last decade that prompts reach, as a power of ten.
const DECADES: std::ops::RangeInclusive<i32> = 0..=5;

/// The requests of a router that looks at none of them: which model answers says nothing of the lengths.
fn unchosen(inputs: &Inputs) -> Runs<'_> {
    Runs::of(&inputs.lines, "requests").router("round-robin")
}

/// Figure 12.
pub(super) fn prompts(inputs: &Inputs) -> Option<Picture> {
    let (mut prompts, _) = figures::lengths(&unchosen(inputs));
    prompts.sort_by_key(|l| look::TASKS.iter().position(|(known, ..)| *known == l.task));
    let longest = prompts.iter().filter_map(|l| l.tokens.last()).fold(0.0_f64, |a, b| a.max(*b));
    let shortest = prompts.iter().filter_map(|l| l.tokens.first()).fold(f64::INFINITY, |a, b| a.min(*b));
    let edges: Vec<f64> = (DECADES.start() * BINS..=DECADES.end() * BINS)
        .map(|i| 10f64.powf(f64::from(i) / f64::from(BINS)))
        .filter(|edge| *edge > shortest / 1.5 && *edge < longest * 1.5)
        .collect();
    // A task's outline spans the bins between its ends, not the whole axis.
    let steps = |l: &figures::Lengths| {
        let shares = l.shares(&edges);
        let first = shares.iter().position(|s| *s > 0.0).unwrap_or(0);
        let last = shares.iter().rposition(|s| *s > 0.0).unwrap_or(0);
        Mark::Steps {
            edges: edges[first..=last + 1].to_vec(),
            heights: shares[first..=last].to_vec(),
            ink: task(&l.task).1,
        }
    };
    (edges.len() > 1 && !prompts.is_empty()).then(|| Picture {
        title: "How long prompts are".into(),
        subtitle: format!("Share of a task's requests in each of {BINS} bins a decade"),
        legend: prompts.iter().map(|l| key(&l.task)).collect(),
        panels: vec![Panel {
            x: Axis { label: "Prompt, tokens (log)".into(), scale: Scale::Log, ..Axis::default() },
            y: Axis { label: "Share of requests".into(), percent: true, ..Axis::default() },
            marks: prompts.iter().map(steps).collect(),
            ..Panel::default()
        }],
        columns: 1,
        panel_size: (920, 380),
    })
}

/// Figure 13.
pub(super) fn answers(inputs: &Inputs) -> Option<Picture> {
    let (_, answers) = figures::lengths(&unchosen(inputs));
    let models = look::by_size(answers.iter().map(|l| &l.model));
    let mut tasks: Vec<&str> = answers.iter().map(|l| l.task.as_str()).collect();
    tasks.sort_by_key(|name| look::TASKS.iter().position(|(known, ..)| known == name));
    tasks.dedup();
    let mut marks = Vec::new();
    let width = 0.72 / models.len().max(1) as f64;
    for lengths in &answers {
        let group = tasks.iter().position(|t| *t == lengths.task)? as f64;
        let place = models.iter().position(|m| *m == lengths.model)?;
        let left = group - 0.36 + width * place as f64;
        let x = (left + 0.1 * width, left + 0.9 * width);
        marks.push(Mark::Box { x, at: lengths.quartiles(), ink: look::model(place) });
    }
    (!marks.is_empty()).then(|| Picture {
        title: "How long answers are".into(),
        subtitle: "Boxes: middle half with the median; whiskers: 5th to 95th percentile; sent by round-robin"
            .into(),
        legend: look::model_keys(&models),
        panels: vec![Panel {
            x: Axis {
                ticks: tasks.iter().enumerate().map(|(i, t)| (i as f64, task(t).0)).collect(),
                range: Some((-0.5, tasks.len() as f64 - 0.5)),
                no_grid: true,
                ..Axis::default()
            },
            y: Axis { label: "Answer, tokens (log)".into(), scale: Scale::Log, ..Axis::default() },
            marks,
            ..Panel::default()
        }],
        columns: 1,
        panel_size: (920, 400),
    })
}

fn key(name: &str) -> Key {
    let (label, ink) = task(name);
    Key { label, ink, shape: Shape::Square }
}

/// Returns a task's label, with the paper's data set, and its colour.
fn task(name: &str) -> (String, Ink) {
    let known = look::TASKS.iter().find(|(known, ..)| *known == name);
    known.map_or_else(
        || (name.to_owned(), (130, 136, 144)),
        |(name, data, ink)| (format!("{} ({data})", name.replace('-', " ")), *ink),
    )
}
