//! BEAR routes chat requests over a pool of language models.
//!
//! Each folder is a room on a floor; a room uses rooms on lower floors only. `ARCHITECTURE.md` shows
//! the plan, and `tests/suite/architecture.rs` holds the line.

pub mod affinity;
pub mod calibrate;
pub mod cli;
pub mod config;
pub mod domain;
pub mod draw;
pub mod engine;
pub mod gateway;
pub mod lab;
pub mod latency;
pub mod policy;
pub mod pool;
pub mod predict;
pub mod router;
pub mod simengine;
pub mod snapshots;
pub mod store;
pub mod telemetry;
pub mod truth;
pub mod wire;
