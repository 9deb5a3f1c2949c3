//! The trainer's parameters, from a JSON file or by default.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A parameter that nothing can be trained with.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the recipe's `{name}` is {value}; it must be {expected}")]
pub struct RecipeError {
    /// Its path.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What would do.
    pub expected: &'static str,
}

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
    /// Huber's threshold of the accuracy model, in units of the score: errors beyond it count linearly, so that from 1
    /// on the loss is the squared one. The thresholds to try on the validation prompts; without those the first is
    /// taken.
    pub huber_alpha: Vec<f64>,
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
            huber_alpha: vec![0.3, 0.1],
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

impl Recipe {
    /// Checks every parameter, so that a wrong one is told before anything is read.
    ///
    /// # Errors
    /// Names the first parameter out of its range.
    pub fn check(&self) -> Result<(), RecipeError> {
        let shares = [("held_out_share", self.held_out_share), ("validation_share", self.validation_share)];
        for (name, share) in shares {
            require(name, share, "from 0 to 0.9", (0.0..=0.9).contains(&share))?;
        }
        let alphas = &self.huber_alpha;
        require("huber_alpha", "an empty list", "a list of one number or more", !alphas.is_empty())?;
        for alpha in alphas.iter().copied() {
            require("huber_alpha", alpha, "above 0 and finite", alpha > 0.0 && alpha.is_finite())?;
        }
        self.accuracy.check("accuracy")?;
        self.output_length.check("output_length")
    }
}

/// Refuses the parameter `name` unless it `holds`.
fn require(name: &str, value: impl ToString, expected: &'static str, holds: bool) -> Result<(), RecipeError> {
    if holds {
        return Ok(());
    }
    Err(RecipeError { name: name.to_owned(), value: value.to_string(), expected })
}

impl BoosterRecipe {
    fn check(&self, section: &str) -> Result<(), RecipeError> {
        let name = |field: &str| format!("{section}.{field}");
        let rounds = self.num_iterations;
        require(&name("num_iterations"), rounds, "from 1 to 100000", (1..=100_000).contains(&rounds))?;
        let sizes = &self.num_leaves;
        require(&name("num_leaves"), "an empty list", "a list of one size or more", !sizes.is_empty())?;
        for leaves in sizes.iter().copied() {
            // LightGBM's own range.
            require(&name("num_leaves"), leaves, "from 2 to 131072", (2..=131_072).contains(&leaves))?;
        }
        let (rate, share, penalty) = (self.learning_rate, self.feature_fraction, self.lambda_l2);
        require(&name("learning_rate"), rate, "a number above 0", rate > 0.0 && rate.is_finite())?;
        require(&name("feature_fraction"), share, "above 0 and at most 1", share > 0.0 && share <= 1.0)?;
        require(&name("lambda_l2"), penalty, "0 or more", penalty >= 0.0 && penalty.is_finite())?;
        require(&name("max_bin"), self.max_bin, "from 2 to 65535", (2..=65_535).contains(&self.max_bin))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_can_be_trained_with_and_each_wrong_parameter_is_named() {
        assert_eq!(Recipe::default().check(), Ok(()));
        for (json, name) in [
            (r#"{"held_out_share":0.95}"#, "held_out_share"),
            (r#"{"validation_share":-0.1}"#, "validation_share"),
            (r#"{"huber_alpha":[]}"#, "huber_alpha"),
            (r#"{"huber_alpha":[0.1,0]}"#, "huber_alpha"),
            (r#"{"accuracy":{"num_leaves":[]}}"#, "accuracy.num_leaves"),
            (r#"{"accuracy":{"num_leaves":[31,1]}}"#, "accuracy.num_leaves"),
            (r#"{"output_length":{"num_iterations":0}}"#, "output_length.num_iterations"),
            (r#"{"output_length":{"num_iterations":4294967295}}"#, "output_length.num_iterations"),
            (r#"{"accuracy":{"learning_rate":0}}"#, "accuracy.learning_rate"),
            (r#"{"accuracy":{"feature_fraction":1.5}}"#, "accuracy.feature_fraction"),
            (r#"{"accuracy":{"lambda_l2":-1}}"#, "accuracy.lambda_l2"),
            (r#"{"accuracy":{"max_bin":1}}"#, "accuracy.max_bin"),
        ] {
            let recipe: Recipe = serde_json::from_str(json).unwrap();
            assert_eq!(recipe.check().unwrap_err().name, name, "{json}");
        }
    }
}
