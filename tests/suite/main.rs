//! The one integration binary: what the rooms promise each other, checked from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod architecture;
mod config;
mod config_serve;
mod fakes;
mod fidelity;
mod gateway;
mod gateway_failures;
mod gateway_traces;
mod lab_commands;
mod lab_data;
mod lab_run;
mod lab_sources;
mod parity;
mod predict;
mod replay;
mod replay_engine;
mod replay_fast;
mod routing;
mod routing_fidelity;
mod routing_sources;
mod simengine;
mod simengine_fidelity;
mod store;
mod store_commands;
mod telemetry;
