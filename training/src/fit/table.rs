//! The rows with everything their features need: trains a regressor on its part of them, measures on the rest.

use bear::predict::{
    Forest, Pca, SplitMetrics, bundle,
    digest::fraction,
    features::{self, ACCURACY_FEATURES, MODEL_FEATURE, OUTPUT_LENGTH_FEATURES, PROMPT_FEATURES},
};

use super::{FitError, Order, facts};
use crate::{
    evaluations::{Corpus, Row},
    lightgbm::{Booster, Matrix},
    metrics::{Outcome, measure},
    recipe::{BoosterRecipe, Objective, Recipe},
};

/// Validation rows below which no size is chosen: their error would be chance.
const LEAST_VALIDATION_ROWS: usize = 100;
/// The numbers of rounds that are tried go down from the most in steps of this.
const ROUNDS_STEP: usize = 10;

/// What a prompt is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Trained on, always.
    Fitted,
    /// Trained on, except while the sizes are chosen.
    Validation,
    /// Measured only.
    HeldOut,
}

impl Part {
    /// Assigns a prompt by hashes of its id, so that it stays where it is when rows are added.
    pub(super) fn of(prompt_id: &str, recipe: &Recipe) -> Self {
        if fraction(prompt_id) < recipe.held_out_share {
            Self::HeldOut
        } else if fraction(&format!("validation {prompt_id}")) < recipe.validation_share {
            Self::Validation
        } else {
            Self::Fitted
        }
    }
}

/// What a regressor predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The score.
    Accuracy,
    /// The answer's length.
    OutputTokens,
}

impl Target {
    fn value(self, row: &Row) -> Option<f64> {
        match self {
            Self::Accuracy => Some(row.score),
            Self::OutputTokens => row.output_tokens,
        }
    }

    /// The bundle's file for it.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Accuracy => bundle::ACCURACY,
            Self::OutputTokens => bundle::OUTPUT_LENGTH,
        }
    }
}

/// What is chosen of a model.
#[derive(Clone, Copy, Debug)]
struct Shape {
    objective: Objective,
    leaves: u32,
    rounds: u32,
}

/// A trained regressor.
pub(super) struct Trained {
    /// LightGBM's text.
    pub(super) text: String,
    /// Trees in it.
    pub(super) trees: usize,
    /// Its errors on the held-out prompts; none where none were held out.
    pub(super) metrics: Option<SplitMetrics>,
}

/// Rows, their prompts' parts and vectors.
pub(super) struct Table<'a> {
    corpus: &'a Corpus,
    order: &'a Order<'a>,
    parts: &'a [Part],
    vectors: Vec<[f64; PROMPT_FEATURES]>,
}

impl<'a> Table<'a> {
    /// Projects every prompt.
    pub(super) fn new(corpus: &'a Corpus, order: &'a Order<'a>, parts: &'a [Part], pca: &Pca) -> Self {
        let vectors = corpus.prompts.iter().map(|prompt| prompt.features.prompt_vector(pca)).collect();
        Self { corpus, order, parts, vectors }
    }

    /// Returns whether some training row tells `target`.
    pub(super) fn has(&self, target: Target) -> bool {
        self.rows(target, &[Part::Fitted, Part::Validation]).next().is_some()
    }

    /// Trains one regressor, its size chosen on the validation prompts, and measures it.
    pub(super) fn train(&self, target: Target, progress: &mut impl FnMut()) -> Result<Trained, FitError> {
        let shape = self.choose_shape(target, progress)?;
        let booster = self.boost(target, &[Part::Fitted, Part::Validation], shape, progress)?;
        let text = booster.to_text()?;
        let unservable = |source| FitError::Unservable { file: target.file(), source };
        let forest = Forest::parse(text.as_bytes()).map_err(unservable)?;
        let metrics = self.measure(target, &forest)?;
        Ok(Trained { text, trees: forest.trees(), metrics })
    }

    /// Finds the threshold, leaves and rounds with the least squared error on prompts that were not fitted: what
    /// routing needs is the mean.
    fn choose_shape(&self, target: Target, progress: &mut impl FnMut()) -> Result<Shape, FitError> {
        let candidates = self.candidates(target);
        let Some(default) = candidates.first().copied() else {
            return Err(FitError::NothingToTry { file: target.file() });
        };
        let (rows, truths) = self.matrix(target, &[Part::Validation])?;
        let fitted = self.rows(target, &[Part::Fitted]).next().is_some();
        if rows.rows() < LEAST_VALIDATION_ROWS || !fitted {
            return Ok(default);
        }
        let mut best = (f64::INFINITY, default);
        for longest in candidates {
            let booster = self.boost(target, &[Part::Fitted], longest, progress)?;
            for rounds in (1..=longest.rounds).rev().step_by(ROUNDS_STEP) {
                let predictions = booster.predict(&rows, Some(rounds))?;
                let error: f64 =
                    predictions.iter().zip(&truths).map(|(p, t)| (p - f64::from(*t)).powi(2)).sum();
                if error < best.0 {
                    best = (error, Shape { rounds, ..longest });
                }
            }
        }
        Ok(best.1)
    }

    /// Returns what is tried, each with the most rounds.
    fn candidates(&self, target: Target) -> Vec<Shape> {
        let recipe = self.order.recipe;
        let objectives = match target {
            Target::Accuracy => {
                recipe.huber_alpha.iter().map(|alpha| Objective::Huber { alpha: *alpha }).collect()
            }
            Target::OutputTokens => vec![Objective::Mean],
        };
        let (_, _, booster) = self.plan(target);
        let with = |objective| {
            let shape =
                move |leaves: &u32| Shape { objective, leaves: *leaves, rounds: booster.num_iterations };
            booster.num_leaves.iter().map(shape)
        };
        objectives.into_iter().flat_map(with).collect()
    }

    fn boost(
        &self,
        target: Target,
        parts: &[Part],
        shape: Shape,
        progress: &mut impl FnMut(),
    ) -> Result<Booster, FitError> {
        let (_, names, recipe) = self.plan(target);
        let (rows, labels) = self.matrix(target, parts)?;
        let parameters =
            recipe.parameters(shape.objective, shape.leaves, MODEL_FEATURE, self.order.recipe.seed);
        Ok(Booster::train(&rows, &labels, &names, &parameters, shape.rounds, |_| progress())?)
    }

    fn plan(&self, target: Target) -> (usize, Vec<String>, &BoosterRecipe) {
        let recipe = self.order.recipe;
        match target {
            Target::Accuracy => (ACCURACY_FEATURES, features::accuracy_feature_names(), &recipe.accuracy),
            Target::OutputTokens => {
                (OUTPUT_LENGTH_FEATURES, features::output_length_feature_names(), &recipe.output_length)
            }
        }
    }

    fn rows(&self, target: Target, parts: &[Part]) -> impl Iterator<Item = (&Row, f64)> {
        let rows = self.corpus.rows.iter().filter(move |row| parts.contains(&self.parts[row.prompt]));
        rows.filter_map(move |row| Some((row, target.value(row)?)))
    }

    /// Lays out the rows of some parts, with what came.
    fn matrix(&self, target: Target, parts: &[Part]) -> Result<(Matrix, Vec<f32>), FitError> {
        let (columns, ..) = self.plan(target);
        let mut matrix = Matrix::new(columns);
        let mut labels = Vec::new();
        for (row, value) in self.rows(target, parts) {
            let prompt = &self.vectors[row.prompt];
            let category = row.model as u32;
            match target {
                Target::Accuracy => {
                    let facts = facts(self.corpus, self.order, row.model)?;
                    let (size, context) = (facts.parameters_b, facts.max_model_len);
                    matrix.push(&features::accuracy_row(prompt, category, size, context))?;
                }
                Target::OutputTokens => matrix.push(&features::output_length_row(prompt, category))?,
            }
            labels.push(value as f32);
        }
        Ok((matrix, labels))
    }

    fn measure(&self, target: Target, forest: &Forest) -> Result<Option<SplitMetrics>, FitError> {
        let means = self.training_means(target);
        let (matrix, _) = self.matrix(target, &[Part::HeldOut])?;
        let outcomes: Vec<Outcome> = self
            .rows(target, &[Part::HeldOut])
            .zip(matrix.iter())
            .map(|((row, truth), values)| {
                let raw = forest.predict(values);
                let predicted = match target {
                    Target::Accuracy => raw.clamp(0.0, 1.0),
                    Target::OutputTokens => raw.max(1.0),
                };
                Outcome { prompt: row.prompt, truth, predicted, baseline: means[row.model] }
            })
            .collect();
        Ok(measure(&outcomes))
    }

    /// Each model's mean over its training rows; a model without any gets the mean of all.
    fn training_means(&self, target: Target) -> Vec<f64> {
        let mut sums = vec![(0.0_f64, 0.0_f64); self.corpus.models.len()];
        let mut all = (0.0_f64, 0.0_f64);
        for (row, value) in self.rows(target, &[Part::Fitted, Part::Validation]) {
            for (sum, count) in [&mut sums[row.model], &mut all] {
                *sum += value;
                *count += 1.0;
            }
        }
        let overall = all.0 / all.1.max(1.0);
        sums.into_iter().map(|(sum, count)| if count > 0.0 { sum / count } else { overall }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_keeps_its_shares_and_is_nested() {
        let ids: Vec<String> = (0..4_000).map(|i| format!("prompt-{i}")).collect();
        let with = |held_out_share| Recipe { held_out_share, validation_share: 0.25, ..Recipe::default() };
        let count = |part, share| ids.iter().filter(|id| Part::of(id, &with(share)) == part).count();
        assert!((700..=900).contains(&count(Part::HeldOut, 0.2)), "{}", count(Part::HeldOut, 0.2));
        assert!((700..=900).contains(&count(Part::Validation, 0.2)), "{}", count(Part::Validation, 0.2));
        assert_eq!(count(Part::HeldOut, 0.0), 0);
        let held_out = |id: &String, share| Part::of(id, &with(share)) == Part::HeldOut;
        assert!(ids.iter().all(|id| !held_out(id, 0.1) || held_out(id, 0.2)));
    }
}
