//! The requests of a real router, from its decisions as `bear store export` writes them.
//!
//! A log tells what was observed of the chosen model only. Assumed is therefore: each model's score is the
//! accuracy predicted for it (no one judged), its output the predicted length, except that the model that
//! answered gives what it gave. A predictor of the same version then knows the scores exactly. A request that
//! was tried again is one request, answered as its last attempt was. Prefixes are not logged: none are shared.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use rand::RngCore;
use serde::Deserialize;
use serde_json::Value;

use super::{ModelFacts, Setup, Workload, parse};
use crate::{
    domain::{Decision, Ending, Outcome, Timestamp},
    lab::{Answer, Item, LabError, options},
    predict::QueryFeatures,
};

/// The registered name.
pub(super) const NAME: &str = "decision-log";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The exported decisions, JSON lines.
    file: String,
    /// Whether it begins anew at its end.
    #[serde(default, rename = "loop")]
    again: bool,
}

/// One exported attempt, as far as it is used.
#[derive(Deserialize)]
struct Attempt {
    decided_at: Timestamp,
    decision: Decision,
    #[serde(default)]
    query: AskedFor,
    outcome: Outcome,
    features: Option<Described>,
}

#[derive(Default, Deserialize)]
struct AskedFor {
    #[serde(default)]
    max_output_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Described {
    values: Value,
}

struct DecisionLog {
    items: Vec<Item>,
    next: usize,
    again: bool,
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let Options { file, again } = parse(NAME, setup)?;
    let text = options::text(setup.files, &file)?;
    let error = |what: String| LabError::Data { file: file.clone(), what };
    let attempts = requests(text).map_err(error)?;
    let decided = || attempts.iter().flat_map(|attempt| &attempt.decision.candidates);
    if let Some(model) = setup.models.iter().find(|model| decided().all(|c| c.model != model.id)) {
        let mut known: Vec<&str> = decided().map(|candidate| candidate.model.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        let known = known.join(", ");
        return Err(error(format!("decides nothing about `{}`; its models: {known}", model.id)));
    }
    let task: Arc<str> = NAME.into();
    let items: Vec<Item> = attempts.iter().filter_map(|attempt| attempt.item(setup.models, &task)).collect();
    if items.is_empty() {
        return Err(error(String::from("tells no request's output tokens, neither predicted nor observed")));
    }
    Ok(Box::new(DecisionLog { items, next: 0, again }))
}

/// Reads the last attempt of each request, in order of the first ones.
fn requests(text: &str) -> Result<Vec<Attempt>, String> {
    let mut by_id: HashMap<String, Attempt> = HashMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let attempt: Attempt =
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))?;
        match by_id.entry(attempt.decision.request_id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(attempt);
            }
            Entry::Occupied(mut entry) => {
                let began = entry.get().decided_at.min(attempt.decided_at);
                if attempt.decision.attempt > entry.get().decision.attempt {
                    entry.insert(attempt);
                }
                entry.get_mut().decided_at = began;
            }
        }
    }
    let mut attempts: Vec<Attempt> = by_id.into_values().collect();
    attempts
        .sort_by(|a, b| (a.decided_at, &a.decision.request_id).cmp(&(b.decided_at, &b.decision.request_id)));
    Ok(attempts)
}

impl Attempt {
    /// Returns the request; none where nothing tells any answer's length.
    fn item(&self, models: &[ModelFacts], task: &Arc<str>) -> Option<Item> {
        let chosen = self.decision.chosen();
        let observed = chosen
            .zip(self.outcome.output_tokens.filter(|_| self.outcome.ending == Ending::Complete))
            .map(|(candidate, tokens)| (candidate.model.as_str(), tokens.max(1)));
        let answers = models.iter().map(|model| self.answer(model, models, observed));
        let prompt_tokens =
            self.outcome.prompt_tokens.or_else(|| chosen.map(|candidate| candidate.prompt_tokens))?;
        let features = self.features.as_ref().and_then(|described| {
            // Those of an earlier feature function are no use to this version's predictors.
            serde_json::from_value::<QueryFeatures>(described.values.clone()).ok()
        });
        Some(Item {
            task: Arc::clone(task),
            prompt_tokens: prompt_tokens.max(1),
            features: features.map(Arc::new),
            block_hashes: Arc::default(),
            answers: answers.collect::<Option<_>>()?,
            max_output_tokens: self.query.max_output_tokens,
            follow_up: None,
        })
    }

    /// Returns what `model` is taken to answer: what it did, else what was predicted, else what the model that
    /// answered did, by the ratio of their length factors.
    fn answer(
        &self,
        model: &ModelFacts,
        models: &[ModelFacts],
        observed: Option<(&str, u32)>,
    ) -> Option<Answer> {
        let candidates = || self.decision.candidates.iter().filter(|candidate| candidate.model == model.id);
        let own = observed.filter(|(by, _)| *by == model.id).map(|(_, tokens)| tokens);
        let predicted = || candidates().find_map(|candidate| candidate.output_tokens).map(rounded);
        let scaled = || {
            let (by, tokens) = observed?;
            let factor = models.iter().find(|other| other.id == by).map_or(1.0, |other| other.output_factor);
            Some(rounded(f64::from(tokens) * model.output_factor / factor))
        };
        let output_tokens = own.or_else(predicted).or_else(scaled)?;
        Some(Answer { score: candidates().find_map(|candidate| candidate.accuracy), output_tokens })
    }
}

fn rounded(tokens: f64) -> u32 {
    tokens.round().max(1.0) as u32
}

impl Workload for DecisionLog {
    fn next(&mut self, _rng: &mut dyn RngCore) -> Option<Item> {
        if self.again && self.next == self.items.len() {
            self.next = 0;
        }
        let item = self.items.get(self.next)?.clone();
        self.next += 1;
        Some(item)
    }
}
