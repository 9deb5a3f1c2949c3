//! Answers of thousands of tokens: reasoning over short prompts, and long summaries of long documents.
//!
//! Reasoning has the token-aware routing post's lengths (inference-perf's `reasoning`). Of long-output
//! summarisation the post says only that it is wanted: prompts here are those of the same catalogue's
//! `batch-summarization-rag`, outputs have the range and moments of its `batch-synthetic` (uniform 500–8,000).

use std::{collections::BTreeMap, sync::Arc};

use rand::{
    RngCore,
    distr::{Distribution, weighted::WeightedIndex},
};
use serde::Deserialize;

use super::{
    Setup, Workload,
    blocks::{Blocks, mixed},
    lengths::mean_sd,
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
pub(super) const NAME: &str = "long-output";
/// Stands for the shared system prompts in block hashes.
const COMMON: u64 = 0x6c6f_6e67;

/// One kind of request, tokens.
struct Facts {
    kind: Kind,
    /// The task whose scores stand in; absent: the mean of all.
    task: Option<Task>,
    /// Its shared system prompt.
    system: u32,
    /// Mean and standard deviation of the rest of the prompt, the shape between, and its range.
    prompt: (f64, f64),
    prompt_shape: Shape,
    prompt_clip: [f64; 2],
    /// Mean and standard deviation of the (lognormal) output, and its range.
    output: (f64, f64),
    output_clip: [u32; 2],
}

/// The distribution of a length.
#[derive(Clone, Copy)]
enum Shape {
    LogNormal,
    Normal,
}

const KINDS: [Facts; 2] = [
    Facts {
        kind: Kind {
            name: "reasoning",
            cues: &[(Cue::Calculate, 0.6), (Cue::Question, 0.5), (Cue::LengthLong, 0.4)],
            counted: 0.0,
            characters_per_token: 3.7,
            tokens_per_sentence: 24.0,
        },
        task: None,
        system: 250,
        prompt: (1_000.0, 800.0),
        prompt_shape: Shape::LogNormal,
        prompt_clip: [100.0, 5_000.0],
        output: (8_000.0, 6_500.0),
        output_clip: [500, 32_000],
    },
    Facts {
        kind: Kind {
            name: "summarisation",
            cues: &[(Cue::Summarize, 0.95), (Cue::LengthLong, 0.7), (Cue::Documents, 0.6)],
            counted: 0.3,
            characters_per_token: 4.9,
            tokens_per_sentence: 29.0,
        },
        task: Some(Task::Summarisation),
        system: 500,
        prompt: (15_000.0, 22_000.0),
        prompt_shape: Shape::Normal,
        prompt_clip: [1_000.0, 80_000.0],
        // A uniform from 500 to 8,000 has mean 4,250 and standard deviation 7,500/√12 = 2,165.
        output: (4_250.0, 2_165.0),
        output_clip: [500, 8_000],
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Weights of `reasoning` and `summarisation`; absent: equal. A kind that is not named does not come.
    #[serde(default)]
    mix: Option<BTreeMap<String, f64>>,
    /// Whether answers are judged: scores then have the means of the paper's table 2, summarisation its own,
    /// reasoning those over all tasks.
    #[serde(default = "yes")]
    judged: bool,
}

const fn yes() -> bool {
    true
}

struct LongOutput {
    which: WeightedIndex<f64>,
    plans: Vec<Plan>,
    context_tokens: u32,
}

struct Plan {
    name: Arc<str>,
    system: u32,
    common: u64,
    prompt: PromptLaw,
    prompt_clip: [f64; 2],
    answers: AnswerLaw,
    sketcher: Sketcher,
}

enum PromptLaw {
    LogNormal(LogNormal),
    Normal { mean: f64, sd: f64 },
}

impl PromptLaw {
    /// Returns the length `size` standard deviations from the middle.
    fn at(&self, size: f64) -> f64 {
        match self {
            Self::LogNormal(law) => (law.mu + law.sigma * size).exp(),
            Self::Normal { mean, sd } => mean + sd * size,
        }
    }
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let options: Options = parse(NAME, setup)?;
    if let Some(unknown) = options
        .mix
        .iter()
        .flatten()
        .map(|(name, _)| name)
        .find(|name| KINDS.iter().all(|facts| facts.kind.name != **name))
    {
        return Err(refused(NAME, &format!("`mix` names `{unknown}`; known: reasoning, summarisation")));
    }
    let weight = |name: &str| options.mix.as_ref().map_or(1.0, |mix| mix.get(name).copied().unwrap_or(0.0));
    let which = WeightedIndex::new(KINDS.iter().map(|facts| weight(facts.kind.name)))
        .map_err(|source| refused(NAME, &format!("`mix`: {source}")))?;
    let shared = Shared::new();
    let plans =
        (0..).zip(&KINDS).map(|(at, facts)| plan(at, facts, options.judged, setup, &shared)).collect();
    let context_tokens = setup.models.iter().map(|model| model.max_model_len).max().unwrap_or_default();
    Ok(Box::new(LongOutput { which, plans, context_tokens }))
}

fn plan(at: u64, facts: &Facts, judged: bool, setup: &Setup<'_>, shared: &Arc<Shared>) -> Plan {
    let (mean, sd) = facts.prompt;
    let prompt = match facts.prompt_shape {
        Shape::LogNormal => PromptLaw::LogNormal(mean_sd(mean, sd)),
        Shape::Normal => PromptLaw::Normal { mean, sd },
    };
    let output = mean_sd(facts.output.0, facts.output.1);
    let score = |parameters_b| judged.then(|| mean_score(facts.task, parameters_b));
    Plan {
        name: facts.kind.name.into(),
        system: facts.system,
        common: mixed(COMMON, at),
        prompt,
        prompt_clip: facts.prompt_clip,
        answers: AnswerLaw::new(setup.models, output, facts.output_clip, |model| score(model.parameters_b)),
        sketcher: Sketcher::new(facts.kind, setup.feature_version, shared),
    }
}

impl Workload for LongOutput {
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item> {
        let plan = self.plans.get(self.which.sample(rng))?;
        let size = normal(rng);
        let nature = Nature::draw(size, rng);
        let answers = plan.answers.draw(&nature, rng);
        let [least, most] = plan.prompt_clip;
        let wanted = plan.system + plan.prompt.at(size).clamp(least, most).round() as u32;
        // What does not fit a context beside its answer is cut, as clients do.
        let longest = answers.iter().map(|answer| answer.output_tokens).max().unwrap_or_default();
        let room = self.context_tokens.saturating_sub(longest).max(plan.system + 1);
        let prompt_tokens = wanted.min(room);
        let visible_tokens = plan.answers.visible_tokens(&nature);
        Some(Item {
            task: Arc::clone(&plan.name),
            prompt_tokens,
            features: plan.sketcher.draw(prompt_tokens, &nature, visible_tokens, rng),
            block_hashes: Blocks::begin(plan.common, plan.system, rng).hashes(prompt_tokens),
            answers,
            max_output_tokens: None,
            follow_up: None,
        })
    }
}
