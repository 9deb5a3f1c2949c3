//! One colour and shape a router, model and task, the same in every figure. The hues are those of Okabe and
//! Ito and of Tol, which the common forms of colour blindness keep apart, darkened where they name text.

use std::collections::BTreeSet;

use crate::draw::{Ink, Key, Shape};

/// How a router is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) ink: Ink,
    pub(super) shape: Shape,
    pub(super) width: f64,
}

/// Every router that figures know, in the order of legends: BEAR, those that the paper compares, others.
const ROUTERS: &[(&str, Ink, Shape)] = &[
    ("bear", (0, 72, 150), Shape::Circle),
    ("bear-lagrangian", (58, 130, 200), Shape::Circle),
    ("bear-prefill", (196, 78, 30), Shape::Square),
    ("route-balance", (213, 94, 0), Shape::Square),
    ("score", (186, 78, 140), Shape::Diamond),
    ("latency-agnostic", (176, 122, 0), Shape::Triangle),
    ("round-robin", (110, 116, 124), Shape::Cross),
    ("shortest-queue", (0, 136, 104), Shape::Triangle),
    ("lmdeploy", (118, 66, 160), Shape::Square),
    ("vllm-sr", (62, 66, 74), Shape::Diamond),
    ("lmdeploy-observed", (160, 130, 190), Shape::Square),
    ("block", (150, 92, 70), Shape::Circle),
    ("power-of-two", (110, 150, 120), Shape::Diamond),
    ("sglang-cache-aware", (96, 130, 150), Shape::Triangle),
    ("dynamo", (160, 140, 110), Shape::Cross),
    ("oracle", (0, 0, 0), Shape::Cross),
];

/// The seven that the paper compares BEAR with.
pub(super) const PAPER_BASELINES: [&str; 7] =
    ["route-balance", "score", "latency-agnostic", "round-robin", "shortest-queue", "lmdeploy", "vllm-sr"];

/// The tasks of the workload, their data sets in the paper, and their colours.
pub(super) const TASKS: &[(&str, &str, Ink)] = &[
    ("instruction-following", "Alpaca", (68, 119, 170)),
    ("question-answering", "HotpotQA", (214, 84, 104)),
    ("summarisation", "GovReport", (34, 136, 51)),
    ("creative-writing", "WritingPrompts", (186, 150, 20)),
];

const SMALL: Ink = (120, 190, 230);
const MIDDLE: Ink = (46, 150, 134);
const LARGE: Ink = (51, 34, 136);
/// What has no colour of its own.
const OTHER: Ink = (130, 136, 144);

/// Returns how a router is drawn.
pub(super) fn router(label: &str) -> Look {
    let known = ROUTERS.iter().find(|(name, ..)| *name == label);
    let (ink, shape) = known.map_or((OTHER, Shape::Circle), |(_, ink, shape)| (*ink, *shape));
    let width = match label {
        "bear" => 3.5,
        label if PAPER_BASELINES.contains(&label) || label.starts_with("bear") => 2.0,
        _ => 1.25,
    };
    Look { ink, shape, width }
}

/// Returns a router's place in legends; unknown ones come last.
pub(super) fn rank(label: &str) -> usize {
    ROUTERS.iter().position(|(name, ..)| *name == label).unwrap_or(ROUTERS.len())
}

/// Returns whether a router is one to be compared with: neither BEAR in any form nor one that knows the truth.
pub(super) fn is_baseline(label: &str) -> bool {
    !label.starts_with("bear") && label != "oracle"
}

/// Returns a model's colour by its place among the pool's models, smallest first.
pub(super) fn model(place: usize) -> Ink {
    [SMALL, MIDDLE, LARGE].get(place).copied().unwrap_or(OTHER)
}

/// Returns models, each once, by the parameters in their names (`qwen3-0.6b`), those without last.
pub(super) fn by_size<'a>(models: impl Iterator<Item = &'a String>) -> Vec<String> {
    let distinct: BTreeSet<&String> = models.collect();
    let mut models: Vec<String> = distinct.into_iter().cloned().collect();
    models.sort_by(|a, b| size(a).total_cmp(&size(b)));
    models
}

fn size(model: &str) -> f64 {
    let mut parts = model.split('-').filter_map(|part| part.to_lowercase().strip_suffix('b')?.parse().ok());
    parts.next_back().unwrap_or(f64::INFINITY)
}

/// Returns the legend of models.
pub(super) fn model_keys(models: &[String]) -> Vec<Key> {
    let key = |(i, name): (usize, &String)| Key { label: name.clone(), ink: model(i), shape: Shape::Square };
    models.iter().enumerate().map(key).collect()
}
