//! Trains BEAR's predictors: evaluations to features to LightGBM to a checked bundle.

pub mod tokenizer;
