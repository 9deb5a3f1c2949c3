//! Agents that write code with tools: conversations over a long system prompt, whose every turn sends all that
//! came before.
//!
//! The token-aware routing post gives ranges and means: system prompts 3,000–100,000 tokens (mean 55,000), 2–20
//! turns (6), 100–10,000 tokens of input a turn (1,500), 50–4,000 of output (800). Between a range's ends the
//! shape is ours. Tools take as long as in the workload catalogue the post draws on; the first tokens of
//! every system prompt are common, as there. A later turn sends the answer of nominal length, whoever gave it.

use std::sync::Arc;

use rand::RngCore;
use serde::Deserialize;

use super::{
    Setup, Workload,
    blocks::Blocks,
    lengths::{Bounded, mean_sd},
    nature::{AnswerLaw, normal},
    parse, refused,
    scores::mean_score,
    sketch::{Kind, Shared, Sketcher},
};
use crate::{
    lab::{FollowUp, Item, LabError, options},
    predict::Cue,
    truth::lengths::LogNormal,
};

/// The registered name.
pub(super) const NAME: &str = "agentic";
/// The post's ranges and means, tokens and turns.
const SYSTEM_TOKENS: Bounded = Bounded { least: 3_000.0, mean: 55_000.0, most: 100_000.0 };
const TURNS: Bounded = Bounded { least: 2.0, mean: 6.0, most: 20.0 };
const INPUT_TOKENS: Bounded = Bounded { least: 100.0, mean: 1_500.0, most: 10_000.0 };
const OUTPUT_TOKENS: Bounded = Bounded { least: 50.0, mean: 800.0, most: 4_000.0 };
/// A tool's time: mean and standard deviation of a lognormal and its range, seconds (inference-perf's
/// code-generation workload).
const TOOL_S: (f64, f64) = (15.0, 55.0);
const TOOL_RANGE_S: [f64; 2] = [1.0, 100.0];
/// Stands for the common system prompt in block hashes.
const COMMON: u64 = 0x6167_656e_7469_6373;
/// The words.
const KIND: Kind = Kind {
    name: "agentic",
    cues: &[(Cue::Code, 0.9), (Cue::Documents, 0.3), (Cue::Extract, 0.2)],
    counted: 0.0,
    characters_per_token: 3.4,
    tokens_per_sentence: 30.0,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Factor on every number of tokens: conversations of the post need contexts of 131,072.
    #[serde(default = "one")]
    token_scale: f64,
    /// Tokens that all system prompts begin with, before the factor.
    #[serde(default = "common_tokens")]
    common_tokens: u32,
    /// Conversations end before this many tokens; absent: the longest context of the pool.
    #[serde(default)]
    context_tokens: Option<u32>,
    /// Whether answers are judged. The post does not judge; scores then have the means of the paper's table 2
    /// over all tasks.
    #[serde(default = "yes")]
    judged: bool,
}

const fn one() -> f64 {
    1.0
}

const fn common_tokens() -> u32 {
    3_000
}

const fn yes() -> bool {
    true
}

struct Agentic {
    token_scale: f64,
    common_tokens: u32,
    context_tokens: u32,
    tool_s: LogNormal,
    answers: AnswerLaw,
    sketcher: Sketcher,
    task: Arc<str>,
}

/// One turn's lengths, tokens.
#[derive(Clone, Copy)]
struct Turn {
    prompt: u32,
    output: u32,
}

/// Makes the workload.
pub(super) fn build(setup: &Setup<'_>) -> Result<Box<dyn Workload>, LabError> {
    let options: Options = parse(NAME, setup)?;
    options::positive(super::KIND, NAME, "token_scale", options.token_scale)?;
    let longest = setup.models.iter().map(|model| model.max_model_len).max().unwrap_or_default();
    let context_tokens = options.context_tokens.unwrap_or(longest);
    // A conversation must hold a shortest first turn.
    let shortest = (SYSTEM_TOKENS.least + INPUT_TOKENS.least + OUTPUT_TOKENS.least) * options.token_scale;
    if f64::from(context_tokens) < shortest {
        let what = format!("no conversation fits {context_tokens} tokens; set `token_scale` lower");
        return Err(refused(NAME, &what));
    }
    let output = LogNormal {
        mu: (OUTPUT_TOKENS.mean * options.token_scale).ln(),
        sigma: OUTPUT_TOKENS.relative_deviation(),
    };
    let scored = |parameters_b| options.judged.then(|| mean_score(None, parameters_b));
    Ok(Box::new(Agentic {
        token_scale: options.token_scale,
        common_tokens: (f64::from(options.common_tokens) * options.token_scale) as u32,
        context_tokens,
        tool_s: mean_sd(TOOL_S.0, TOOL_S.1),
        answers: AnswerLaw::new(setup.models, output, [1, u32::MAX], |model| scored(model.parameters_b)),
        sketcher: Sketcher::new(KIND, setup.feature_version, &Shared::new()),
        task: NAME.into(),
    }))
}

impl Agentic {
    /// Draws a conversation's turns: the first cut to the context, later ones as far as they fit.
    fn turns(&self, rng: &mut dyn RngCore) -> Vec<Turn> {
        let count = TURNS.draw(rng).round() as usize;
        let tokens =
            |of: Bounded, rng: &mut dyn RngCore| (of.draw(rng) * self.token_scale).round().max(1.0) as u32;
        let mut history = tokens(SYSTEM_TOKENS, rng);
        let mut turns = Vec::with_capacity(count);
        for at in 0..count {
            let (input, output) = (tokens(INPUT_TOKENS, rng), tokens(OUTPUT_TOKENS, rng));
            // A model may answer longer than the nominal length.
            let room = self.context_tokens.saturating_sub(self.answers.longest(output));
            if at == 0 {
                history = history.min(room.saturating_sub(input));
            }
            let prompt = history.saturating_add(input);
            if prompt > room {
                break;
            }
            turns.push(Turn { prompt, output });
            history = prompt.saturating_add(output);
        }
        turns
    }

    fn item(&self, turn: Turn, blocks: Blocks, next: Option<FollowUp>, rng: &mut dyn RngCore) -> Item {
        let nature = self.answers.nature_of(turn.output, normal(rng), rng);
        let visible_tokens = self.answers.visible_tokens(&nature);
        Item {
            task: Arc::clone(&self.task),
            prompt_tokens: turn.prompt,
            features: self.sketcher.draw(turn.prompt, &nature, visible_tokens, rng),
            block_hashes: blocks.hashes(turn.prompt.saturating_add(turn.output)),
            answers: self.answers.draw_scores(turn.output, &nature, rng),
            max_output_tokens: None,
            follow_up: next.map(Box::new),
        }
    }
}

impl Workload for Agentic {
    fn next(&mut self, rng: &mut dyn RngCore) -> Option<Item> {
        let turns = loop {
            // An input and output that alone exceed the context leave no turn: another conversation.
            let turns = self.turns(rng);
            if !turns.is_empty() {
                break turns;
            }
        };
        let blocks = Blocks::begin(COMMON, self.common_tokens.min(turns.first()?.prompt), rng);
        let mut later: Option<Item> = None;
        for turn in turns.into_iter().rev() {
            let [least_s, most_s] = TOOL_RANGE_S;
            let tool_s = (self.tool_s.mu + self.tool_s.sigma * normal(rng)).exp().clamp(least_s, most_s);
            let next = later.take().map(|item| FollowUp { after_us: (tool_s * 1e6) as u64, item });
            later = Some(self.item(turn, blocks, next, rng));
        }
        later
    }
}
