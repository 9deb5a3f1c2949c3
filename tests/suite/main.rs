//! The one integration binary: what the rooms promise each other, checked from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod architecture;
mod fidelity;
mod replay;
mod replay_engine;
mod routing;
mod routing_fidelity;
mod routing_sources;
mod store;
mod telemetry;
