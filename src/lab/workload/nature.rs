//! What a prompt is like beneath its words: how hard it is and how long an answer it wants, in part visible to
//! predictors, in part not.

use std::sync::Arc;

use rand::RngCore;
use rand_distr::{Distribution, StandardNormal};

use super::{ModelFacts, scores::ScoreLaw};
use crate::{lab::Answer, truth::lengths::LogNormal};

/// Shares of the variance of a prompt's difficulty for one model: visible in the prompt, hidden in it (both the
/// same for every model), the model's own. Ours: no source gives them.
const DIFFICULTY_SHARES: [f64; 3] = [0.45, 0.25, 0.3];
/// The same of the logarithm of an answer's length.
const LENGTH_SHARES: [f64; 3] = [0.5, 0.3, 0.2];
/// Weight of a prompt's own length in its visible difficulty: longer ones of a task are harder.
const SIZE_WEIGHT: f64 = 0.3;

/// A prompt's nature; every number is standard normal over prompts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nature {
    /// The visible part of its difficulty.
    pub(super) difficulty: f64,
    /// The visible part of the length it wants.
    pub(super) length: f64,
    hidden_difficulty: f64,
    hidden_length: f64,
}

impl Nature {
    /// Draws the nature of a prompt whose length is `size` standard deviations over its task's.
    pub(super) fn draw(size: f64, rng: &mut dyn RngCore) -> Self {
        let [level, length, hidden_difficulty, hidden_length] = std::array::from_fn(|_| normal(rng));
        let difficulty = (1.0 - SIZE_WEIGHT * SIZE_WEIGHT).sqrt() * level + SIZE_WEIGHT * size;
        Self { difficulty, length, hidden_difficulty, hidden_length }
    }

    /// Returns its difficulty for one model, standard normal over prompts and models.
    fn difficulty_for_one(&self, rng: &mut dyn RngCore) -> f64 {
        mix(DIFFICULTY_SHARES, [self.difficulty, self.hidden_difficulty, normal(rng)])
    }

    /// Returns the length of one model's answer, in standard deviations of its logarithm.
    fn length_for_one(&self, rng: &mut dyn RngCore) -> f64 {
        mix(LENGTH_SHARES, [self.length, self.hidden_length, normal(rng)])
    }
}

/// How the pool's models answer prompts of one kind.
#[derive(Clone, Debug)]
pub(super) struct AnswerLaw {
    /// A score law and a length factor a model.
    models: Vec<(Option<ScoreLaw>, f64)>,
    /// Output tokens of a model with factor 1.
    length: LogNormal,
    /// Shortest and longest answer, tokens.
    clip: [u32; 2],
}

impl AnswerLaw {
    /// Makes the law of answers whose mean score each model has by `mean_score` (absent: nobody judges them).
    pub(super) fn new(
        models: &[ModelFacts],
        length: LogNormal,
        clip: [u32; 2],
        mean_score: impl Fn(&ModelFacts) -> Option<f64>,
    ) -> Self {
        let law = |model: &ModelFacts| (mean_score(model).map(ScoreLaw::with_mean), model.output_factor);
        Self { models: models.iter().map(law).collect(), length, clip }
    }

    /// Draws every model's answer to a prompt.
    pub(super) fn draw(&self, nature: &Nature, rng: &mut dyn RngCore) -> Arc<[Answer]> {
        let answer = |(law, factor): &(Option<ScoreLaw>, f64)| {
            let score = law.map(|law| law.score(nature.difficulty_for_one(rng)));
            let log_tokens = self.length.mu + self.length.sigma * nature.length_for_one(rng);
            Answer { score, output_tokens: self.clipped(log_tokens.exp() * factor) }
        };
        self.models.iter().map(answer).collect()
    }

    /// Draws scores for answers of one nominal length, which each model's factor changes.
    pub(super) fn draw_scores(&self, tokens: u32, nature: &Nature, rng: &mut dyn RngCore) -> Arc<[Answer]> {
        let answer = |(law, factor): &(Option<ScoreLaw>, f64)| {
            let score = law.map(|law| law.score(nature.difficulty_for_one(rng)));
            Answer { score, output_tokens: self.clipped(f64::from(tokens) * factor) }
        };
        self.models.iter().map(answer).collect()
    }

    /// Returns the answer's length as far as the prompt shows it, tokens.
    pub(super) fn visible_tokens(&self, nature: &Nature) -> f64 {
        (self.length.mu + self.length.sigma * nature.length).exp()
    }

    fn clipped(&self, tokens: f64) -> u32 {
        let [least, most] = self.clip;
        tokens.round().clamp(f64::from(least), f64::from(most)) as u32
    }
}

/// Draws from the standard normal.
pub(super) fn normal(rng: &mut dyn RngCore) -> f64 {
    StandardNormal.sample(rng)
}

fn mix(shares: [f64; 3], parts: [f64; 3]) -> f64 {
    shares.into_iter().zip(parts).map(|(share, part)| share.sqrt() * part).sum()
}
