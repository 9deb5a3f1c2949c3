//! What was predicted of requests against what came, and how long requests and answers are.

use std::collections::BTreeMap;

use super::{Runs, percentile};
use crate::lab::RequestRecord;

/// Predicted and realised values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// Realised and predicted, in this order.
    pub points: Vec<(f64, f64)>,
}

/// Lengths of requests or answers, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lengths {
    /// The task.
    pub task: String,
    /// The model; empty for prompts.
    pub model: String,
    /// The lengths, tokens, rising.
    pub tokens: Vec<f64>,
}

/// Which latency a believed one is to be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealisedKind {
    /// To the first token.
    FirstToken,
    /// To the end of the answer.
    WholeAnswer,
}

/// A router's own estimate against what came, by model.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// The router's label.
    pub router: String,
    /// What its estimate is of.
    pub kind: RealisedKind,
    /// The pairs of each model.
    pub models: BTreeMap<String, Pairs>,
}

impl Pairs {
    /// Returns the mean absolute error relative to what came; absent: there are no pairs.
    #[must_use]
    pub fn mape(&self) -> Option<f64> {
        let errors: Vec<f64> = self.points.iter().map(|(real, said)| (said / real - 1.0).abs()).collect();
        (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
    }

    /// Returns the median absolute relative error; absent: there are no pairs.
    #[must_use]
    pub fn median_error(&self) -> Option<f64> {
        let mut errors: Vec<f64> = self.points.iter().map(|(real, said)| (said / real - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        (!errors.is_empty()).then(|| percentile(&errors, 0.5))
    }

    /// Returns at most `most` pairs, evenly taken: pictures need no more.
    #[must_use]
    pub fn thinned(&self, most: usize) -> Vec<(f64, f64)> {
        let step = self.points.len().div_ceil(most.max(1)).max(1);
        self.points.iter().copied().step_by(step).collect()
    }

    fn push(&mut self, realised: Option<f64>, predicted: Option<f64>) {
        if let (Some(real), Some(said)) = (realised, predicted)
            && real > 0.0
            && said >= 0.0
        {
            self.points.push((real, said));
        }
    }
}

impl Lengths {
    /// Returns the 5th, 25th, 50th, 75th and 95th percentile.
    #[must_use]
    pub fn quartiles(&self) -> [f64; 5] {
        [0.05, 0.25, 0.5, 0.75, 0.95].map(|part| percentile(&self.tokens, part))
    }

    /// Returns the share of lengths in each bin between the edges.
    #[must_use]
    pub fn shares(&self, edges: &[f64]) -> Vec<f64> {
        let n = self.tokens.len().max(1) as f64;
        let within = |bin: &[f64]| self.tokens.iter().filter(|t| (bin[0]..bin[1]).contains(t)).count();
        edges.windows(2).map(|bin| within(bin) as f64 / n).collect()
    }
}

/// Returns an estimator's TTFT against the realised one, over every kept request that a model served.
#[must_use]
pub fn estimates(runs: &Runs<'_>, estimator: &str, model: &str) -> Pairs {
    let mut pairs = Pairs::default();
    for request in records(runs).filter(|r| r.model == model) {
        pairs.push(request.ttft_s, request.other_ttft_s.get(estimator).copied());
    }
    pairs
}

/// Returns what each router believed of the instances it chose, against what came.
///
/// A policy without a belief of its own goes by the router's TTFT estimate.
#[must_use]
pub fn beliefs(runs: &Runs<'_>, kinds: &[(&str, RealisedKind)]) -> Vec<Belief> {
    let of = |(router, kind): &(&str, RealisedKind)| {
        let mut models: BTreeMap<String, Pairs> = BTreeMap::new();
        for request in records(&runs.router(router)) {
            let (realised, predicted) = match kind {
                RealisedKind::FirstToken => (request.ttft_s, request.predicted_ttft_s),
                RealisedKind::WholeAnswer => (request.e2e_s, None),
            };
            let pairs = models.entry(request.model.clone()).or_default();
            pairs.push(realised, request.believed_latency_s.or(predicted));
        }
        models.retain(|_, pairs| !pairs.points.is_empty());
        (!models.is_empty()).then(|| Belief { router: (*router).to_owned(), kind: *kind, models })
    };
    kinds.iter().filter_map(of).collect()
}

/// Returns the lengths of prompts by task, and those of answers by task and model.
#[must_use]
pub fn lengths(runs: &Runs<'_>) -> (Vec<Lengths>, Vec<Lengths>) {
    let mut prompts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut answers: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    // Every router of a seed sees the same requests: the prompts of one are those of all.
    let first = runs.routers().into_iter().next().unwrap_or_default();
    for line in runs.lines() {
        for r in &line.requests {
            if line.key.router == first {
                prompts.entry(&r.task).or_default().push(f64::from(r.prompt_tokens));
            }
            if r.ttft_s.is_some() && r.output_tokens > 0 {
                answers.entry((&r.task, &r.model)).or_default().push(f64::from(r.output_tokens));
            }
        }
    }
    let sorted = |mut tokens: Vec<f64>| {
        tokens.sort_by(f64::total_cmp);
        tokens
    };
    let prompts = prompts
        .into_iter()
        .map(|(task, t)| Lengths { task: task.to_owned(), model: String::new(), tokens: sorted(t) })
        .collect();
    let answers = answers
        .into_iter()
        .map(|((task, model), t)| Lengths {
            task: task.to_owned(),
            model: model.to_owned(),
            tokens: sorted(t),
        })
        .collect();
    (prompts, answers)
}

fn records<'a>(runs: &Runs<'a>) -> impl Iterator<Item = &'a RequestRecord> {
    let lines: Vec<_> = runs.lines().to_vec();
    lines.into_iter().flat_map(|line| &line.requests)
}
