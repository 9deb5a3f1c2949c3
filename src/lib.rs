//! BEAR routes chat requests over a pool of language models.
//!
//! Each folder is a room on a floor; a room uses rooms on lower floors only. `ARCHITECTURE.md` shows
//! the plan, and `tests/suite/architecture.rs` holds the line.

pub mod cli;
pub mod domain;
pub mod gateway;
pub mod store;
pub mod telemetry;
pub mod wire;
