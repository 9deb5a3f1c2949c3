//! The paper's workload: instructions, questions over documents, summaries of reports, stories. Scores lie
//! around its table 2; lengths are ours, the paper shows its own as figures only.
//!
//! No prompt shares a prefix with another, so none is hashed.

use std::{collections::BTreeMap, sync::Arc};

use rand::{
    RngCore,
    distr::{Distribution, weighted::WeightedIndex},
};
use serde::Deserialize;

use super::{
    ModelFacts, Setup, Workload,
    nature::{AnswerLaw, Nature, normal},
    parse, refused,
    scores::mean_score,
    sketch::{Kind, Shared, Sketcher},
};
use crate::{
    lab::{Item, LabError},
    predict::Cue,
    truth::lengths::{LogNormal, Task},
};

/// The registered name.
pub(super) const NAME: &str = "four-tasks";
/// Shortest and longest prompt, tokens.
const PROMPT_CLIP: [f64; 2] = [8.0, 30_000.0];
/// Shortest and longest answer, tokens.
pub(super) const OUTPUT_CLIP: [u32; 2] = [2, 2_000];

/// One task: its prompts' words and lengths, and the lengths of its answers.
pub(super) struct TaskFacts {
    /// Which.
    pub(super) task: Task,
    /// Its words.
    pub(super) kind: Kind,
    /// Prompt tokens.
    pub(super) prompt: LogNormal,
    /// Output tokens of a model with factor 1.
    pub(super) output: LogNormal,
}

/// The tasks, a quarter of the requests each. The paper's data sets are Alpaca, HotpotQA, GovReport and
/// WritingPrompts; the lengths have the medians and spreads that simulations of its pool were made with.
pub(super) const TASKS: [TaskFacts; 4] = [
    TaskFacts {
        task: Task::InstructionFollowing,
        kind: Kind {
            name: "instruction-following",
            cues: &[
                (Cue::Explain, 0.25),
                (Cue::List, 0.2),
                (Cue::Question, 0.3),
                (Cue::Write, 0.15),
                (Cue::Rewrite, 0.1),
                (Cue::Code, 0.08),
            ],
            counted: 0.12,
            characters_per_token: 4.4,
            tokens_per_sentence: 17.0,
        },
        prompt: LogNormal { mu: 3.9, sigma: 0.6 },
        output: LogNormal { mu: 5.5, sigma: 0.8 },
    },
    TaskFacts {
        task: Task::QuestionAnswering,
        kind: Kind {
            name: "question-answering",
            cues: &[(Cue::Question, 0.9), (Cue::Documents, 0.8), (Cue::Compare, 0.12)],
            counted: 0.05,
            characters_per_token: 4.2,
            tokens_per_sentence: 26.0,
        },
        prompt: LogNormal { mu: 7.25, sigma: 0.25 },
        output: LogNormal { mu: 3.8, sigma: 0.8 },
    },
    TaskFacts {
        task: Task::Summarisation,
        kind: Kind {
            name: "summarisation",
            cues: &[(Cue::Summarize, 0.95), (Cue::Documents, 0.5)],
            counted: 0.25,
            characters_per_token: 4.9,
            tokens_per_sentence: 29.0,
        },
        prompt: LogNormal { mu: 9.1, sigma: 0.5 },
        output: LogNormal { mu: 6.3, sigma: 0.25 },
    },
    TaskFacts {
        task: Task::CreativeWriting,
        kind: Kind {
            name: "creative-writing",
            cues: &[(Cue::Write, 0.85), (Cue::Explain, 0.08)],
            counted: 0.15,
            characters_per_token: 4.3,
            tokens_per_sentence: 20.0,
        },
        prompt: LogNormal { mu: 3.9, sigma: 0.3 },
        output: LogNormal { mu: 6.55, sigma: 0.3 },
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Weights of the tasks; absent: equal. A task that is not named does not come.
    #[serde(default)]
    mix: Option<BTreeMap<Task, f64>>,
    /// Mean scores by model and task in place of table 2's.
    #[serde(default)]
    scores: BTreeMap<String, BTreeMap<Task, f64>>,
    /// Factor on every answer's length.
    #[serde(default = "one")]
    output_factor: f64,
}

const fn one() -> f64 {
    1.0
}

struct FourTasks {
    which: WeightedIndex<f64>,
    plans: Vec<Plan>,
}

struct Plan {
    name: Arc<str>,
    prompt: LogNormal,
    answers: AnswerLaw,
    sketcher: Sketcher,
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let options: Options = parse(NAME, setup)?;
    crate::lab::options::positive(super::KIND, NAME, "output_factor", options.output_factor)?;
    check_scores(&options, setup.models)?;
    let weight = |task: Task| options.mix.as_ref().map_or(1.0, |mix| mix.get(&task).copied().unwrap_or(0.0));
    let which = WeightedIndex::new(TASKS.iter().map(|facts| weight(facts.task)))
        .map_err(|source| refused(NAME, &format!("`mix`: {source}")))?;
    let shared = Shared::new();
    let plans = TASKS.iter().map(|facts| plan(facts, &options, setup, &shared)).collect();
    Ok(Box::new(FourTasks { which, plans }))
}

fn check_scores(options: &Options, models: &[ModelFacts]) -> Result<(), LabError> {
    for (id, scores) in &options.scores {
        if models.iter().all(|model| model.id != *id) {
            return Err(refused(NAME, &format!("`scores` names `{id}`, which the pool does not have")));
        }
        if let Some(score) = scores.values().find(|score| !(**score > 0.0 && **score < 1.0)) {
            let what = format!("`scores` gives `{id}` {score}; a mean score must lie between 0 and 1");
            return Err(refused(NAME, &what));
        }
    }
    Ok(())
}

fn plan(facts: &TaskFacts, options: &Options, setup: &Setup<'_>, shared: &Arc<Shared>) -> Plan {
    let score = |model: &ModelFacts| {
        let given = options.scores.get(&model.id).and_then(|scores| scores.get(&facts.task));
        Some(given.copied().unwrap_or_else(|| mean_score(Some(facts.task), model.parameters_b)))
    };
    let mut output = facts.output;
    output.mu += options.output_factor.ln();
    Plan {
        name: facts.kind.name.into(),
        prompt: facts.prompt,
        answers: AnswerLaw::new(setup.models, output, OUTPUT_CLIP, score),
        sketcher: Sketcher::new(facts.kind, setup.feature_version, shared),
    }
}

impl Workload for FourTasks {
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item> {
        let plan = self.plans.get(self.which.sample(rng))?;
        let size = normal(rng);
        let [least, most] = PROMPT_CLIP;
        let tokens = (plan.prompt.mu + plan.prompt.sigma * size).exp().clamp(least, most);
        let prompt_tokens = tokens.round() as u32;
        let nature = Nature::draw(size, rng);
        let visible_tokens = plan.answers.visible_tokens(&nature);
        Some(Item {
            task: Arc::clone(&plan.name),
            prompt_tokens,
            features: plan.sketcher.draw(prompt_tokens, &nature, visible_tokens, rng),
            block_hashes: Arc::default(),
            answers: plan.answers.draw(&nature, rng),
            max_output_tokens: None,
            follow_up: None,
        })
    }
}
