//! Trains BEAR's predictors: evaluations to features to LightGBM to a checked bundle.
//!
//! A package of its own because LightGBM's C++ is a long build that a server never needs. It uses `bear`'s
//! feature function, so that training and serving cannot drift, and reads back every model it writes.

mod card;
pub mod evaluations;
pub mod fit;
pub mod fixture;
pub mod lightgbm;
pub mod metrics;
pub mod principal;
pub mod recipe;
pub mod synthetic;
pub mod tokenizer;
