//! Real prompts with real scores: evaluations in the trainer's form, of which only the prompts that `bear-train`
//! holds out are used, so that a bundle trained on the same file has not seen them.
//!
//! Prompts come in a random order, each once before any comes again. Prompt tokens are those of the feature
//! tokenizer. Output tokens are the given ones; where none are, they are drawn as the task's of the four-task
//! workload, and then say nothing about the real models.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use rand::{RngCore, seq::SliceRandom};
use serde::Deserialize;
use serde_json::Value;

use super::{
    ModelFacts, Setup, Workload,
    four_tasks::{OUTPUT_CLIP, TASKS},
    nature::{AnswerLaw, Nature},
    parse, refused,
};
use crate::{
    lab::{Answer, Item, LabError, options},
    predict::{BpeTokens, QueryFeatures, digest, features},
    truth::lengths::Task,
};

/// The registered name.
pub(super) const NAME: &str = "evaluations";
/// Prompt tokens from which a prompt of no known task counts as a question over documents, and as a report: the
/// simulated engines' own rule.
const TASK_BORDERS: [u32; 2] = [500, 2_800];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The evaluations, JSON lines.
    file: String,
    /// The evaluated model that each model of the pool stands for.
    models: BTreeMap<String, String>,
    /// Share of the prompts that training held out, as in its recipe.
    #[serde(default = "held_out_share")]
    held_out_share: f64,
}

const fn held_out_share() -> f64 {
    0.2
}

/// One evaluation, as far as it is used.
#[derive(Deserialize)]
struct Row {
    prompt_id: Value,
    prompt: Option<String>,
    features: Option<QueryFeatures>,
    model: String,
    score: f64,
    output_tokens: Option<f64>,
    task: Option<String>,
}

/// One prompt with what each model of the pool made of it.
struct Prompt {
    features: Arc<QueryFeatures>,
    task: Option<Task>,
    name: Option<Arc<str>>,
    answers: Vec<Option<Given>>,
}

#[derive(Clone, Copy)]
struct Given {
    score: f64,
    output_tokens: Option<u32>,
}

struct Evaluations {
    prompts: Vec<Prompt>,
    /// Positions in this round's order.
    order: Vec<usize>,
    next: usize,
    /// Lengths by task, where none are given.
    laws: Vec<(Task, Arc<str>, AnswerLaw)>,
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let options: Options = parse(NAME, setup)?;
    check(&options, setup.models)?;
    let error = |what: String| LabError::Data { file: options.file.clone(), what };
    let (mut prompts, evaluated) = read(&options, setup).map_err(error)?;
    if let Some(missing) = options.models.values().find(|model| !evaluated.contains(*model)) {
        let evaluated: Vec<String> = evaluated.into_iter().collect();
        let what = format!("has no held-out answers of `{missing}`; its models: {}", evaluated.join(", "));
        return Err(error(what));
    }
    prompts.retain(|prompt| prompt.answers.iter().all(Option::is_some));
    if prompts.is_empty() {
        return Err(error(String::from("holds out no prompt that all the named models answered")));
    }
    let laws = TASKS.iter().map(|facts| {
        let law = AnswerLaw::new(setup.models, facts.output, OUTPUT_CLIP, |_| None);
        (facts.task, facts.kind.name.into(), law)
    });
    let order = (0..prompts.len()).collect();
    Ok(Box::new(Evaluations { next: prompts.len(), prompts, order, laws: laws.collect() }))
}

fn check(options: &Options, models: &[ModelFacts]) -> Result<(), LabError> {
    let share = options.held_out_share;
    if !(share > 0.0 && share <= 1.0) {
        let what = format!("`held_out_share` is {share}; it must be above 0 and at most 1");
        return Err(refused(NAME, &what));
    }
    if let Some(model) = models.iter().find(|model| !options.models.contains_key(&model.id)) {
        let what = format!("`models` does not say which evaluated model `{}` stands for", model.id);
        return Err(refused(NAME, &what));
    }
    match options.models.keys().find(|id| models.iter().all(|model| model.id != **id)) {
        Some(id) => Err(refused(NAME, &format!("`models` names `{id}`, which the pool does not have"))),
        None => Ok(()),
    }
}

/// Reads the held-out prompts in order of appearance, and the names of the models that answered some.
fn read(options: &Options, setup: &Setup<'_>) -> Result<(Vec<Prompt>, BTreeSet<String>), String> {
    let tokens = BpeTokens::built_in();
    let text = options::text(setup.files, &options.file).map_err(|error| error.to_string())?;
    let mut prompts: Vec<Prompt> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    let mut evaluated = BTreeSet::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at_line = |what: String| format!("line {}: {what}", index + 1);
        let row: Row = serde_json::from_str(line).map_err(|error| at_line(error.to_string()))?;
        let id = row.prompt_id.as_str().map_or_else(|| row.prompt_id.to_string(), str::to_owned);
        if digest::fraction(&id) >= options.held_out_share {
            continue;
        }
        if !(0.0..=1.0).contains(&row.score) {
            return Err(at_line(format!("`score` is {}, outside [0,1]", row.score)));
        }
        let at = match by_id.get(&id).copied() {
            Some(at) => at,
            None => {
                let features = match (row.features, &row.prompt) {
                    (Some(features), _) => features,
                    (None, Some(text)) => features::describe(text, &tokens),
                    (None, None) => return Err(at_line(String::from("has neither `prompt` nor `features`"))),
                };
                by_id.insert(id, prompts.len());
                prompts.push(Prompt {
                    features: Arc::new(features),
                    task: row.task.as_deref().and_then(Task::from_name),
                    name: row.task.map(Into::into),
                    answers: vec![None; setup.models.len()],
                });
                prompts.len() - 1
            }
        };
        let output_tokens = row.output_tokens.map(|tokens| tokens.round().max(1.0) as u32);
        let given = Given { score: row.score, output_tokens };
        let Some(prompt) = prompts.get_mut(at) else { continue };
        for (answer, model) in prompt.answers.iter_mut().zip(setup.models) {
            if options.models.get(&model.id) == Some(&row.model) {
                *answer = Some(given);
            }
        }
        evaluated.insert(row.model);
    }
    Ok((prompts, evaluated))
}

impl Prompt {
    /// Returns its task, else the one that a prompt of its length suggests.
    fn task(&self) -> Task {
        let [questions, reports] = TASK_BORDERS;
        self.task.unwrap_or(match self.features.tokens() {
            tokens if tokens < questions => Task::InstructionFollowing,
            tokens if tokens < reports => Task::QuestionAnswering,
            _ => Task::Summarisation,
        })
    }
}

impl Workload for Evaluations {
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item> {
        if self.next == self.order.len() {
            self.order.shuffle(rng);
            self.next = 0;
        }
        let prompt = self.prompts.get(*self.order.get(self.next)?)?;
        self.next += 1;
        let (_, name, law) = self.laws.iter().find(|(task, ..)| *task == prompt.task())?;
        let drawn = law.draw(&Nature::draw(0.0, rng), rng);
        let answer = |(given, drawn): (&Option<Given>, &Answer)| Answer {
            score: given.map(|given| given.score),
            output_tokens: given.and_then(|given| given.output_tokens).unwrap_or(drawn.output_tokens),
        };
        Some(Item {
            task: Arc::clone(prompt.name.as_ref().unwrap_or(name)),
            prompt_tokens: prompt.features.tokens().max(1),
            features: Some(Arc::clone(&prompt.features)),
            block_hashes: Arc::default(),
            answers: prompt.answers.iter().zip(drawn.iter()).map(answer).collect(),
            max_output_tokens: None,
            follow_up: None,
        })
    }
}
