//! Trains BEAR's predictors: evaluations to features to LightGBM to a checked bundle.
//!
//! Kept out of the main package: LightGBM brings CMake and minutes of C++, and nobody who serves should pay
//! for that. Prompts are described by `bear` itself, and every model is read back after it was written.

mod card;
pub mod evaluations;
pub mod fit;
pub mod fixture;
pub mod lab;
pub mod lightgbm;
pub mod metrics;
pub mod principal;
pub mod recipe;
pub mod synthetic;
pub mod tokenizer;
