//! The trainer's parameters, from a JSON file or by default.

use serde::{Deserialize, Serialize};

/// Parameters of one regressor, under LightGBM's own names where it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoosterRecipe {
    /// Most rounds, one tree each; fewer where the validation prompts say so.
    pub num_iterations: u32,
    /// Shrinkage of each tree.
    pub learning_rate: f64,
    /// Leaves of a tree: the sizes to try on the validation prompts; without those the first is taken.
    pub num_leaves: Vec<u32>,
    /// Least rows of a leaf.
    pub min_data_in_leaf: u32,
    /// Share of the features that a tree may use.
    pub feature_fraction: f64,
    /// L2 penalty on leaves.
    pub lambda_l2: f64,
    /// Bins of a feature.
    pub max_bin: u32,
}

impl Default for BoosterRecipe {
    fn default() -> Self {
        Self {
            num_iterations: 300,
            learning_rate: 0.05,
            num_leaves: vec![31, 7],
            min_data_in_leaf: 20,
            feature_fraction: 0.8,
            lambda_l2: 1.0,
            max_bin: 255,
        }
    }
}

/// Everything that a bundle depends on beside its evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// Seed of LightGBM's draws.
    pub seed: u32,
    /// Share of the prompts held out for the metrics, at most 0.9.
    pub held_out_share: f64,
    /// Share of the training prompts on which leaves and rounds are chosen, at most 0.9; the model is then
    /// trained again on all of them. 0: the first size, all rounds.
    pub validation_share: f64,
    /// Huber's threshold of the accuracy model, in units of the score: errors beyond it count linearly. Scores lie in
    /// [0,1], so that from 1 on the loss is the squared one.
    pub huber_alpha: f64,
    /// The accuracy model (Huber).
    pub accuracy: BoosterRecipe,
    /// The output-length model (mean, L2).
    pub output_length: BoosterRecipe,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            seed: 1,
            held_out_share: 0.2,
            validation_share: 0.2,
            huber_alpha: 0.1,
            accuracy: BoosterRecipe::default(),
            output_length: BoosterRecipe::default(),
        }
    }
}

/// What a regressor minimises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// Huber's loss, for scores: squared up to `alpha`, linear beyond.
    Huber {
        /// The threshold, in the target's unit.
        alpha: f64,
    },
    /// Squared error, for the mean of token counts.
    Mean,
}

impl BoosterRecipe {
    /// Returns LightGBM's parameters: single-threaded and deterministic, so that a run repeats to the byte.
    #[must_use]
    pub fn parameters(
        &self,
        objective: Objective,
        num_leaves: u32,
        categorical_feature: usize,
        seed: u32,
    ) -> String {
        let objective = match objective {
            Objective::Huber { alpha } => format!("objective=huber alpha={alpha}"),
            Objective::Mean => String::from("objective=regression"),
        };
        format!(
            "{objective} categorical_feature={categorical_feature} learning_rate={} num_leaves={num_leaves} \
             min_data_in_leaf={} feature_fraction={} lambda_l2={} max_bin={} seed={seed} deterministic=true \
             force_row_wise=true num_threads=1 min_data_per_group=1 cat_smooth=1 max_cat_to_onehot=16 verbosity=-1",
            self.learning_rate, self.min_data_in_leaf, self.feature_fraction, self.lambda_l2, self.max_bin,
        )
    }
}
