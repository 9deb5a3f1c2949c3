//! The one integration binary: what the rooms promise each other, checked from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod architecture;
mod fakes;
mod gateway;
mod gateway_failures;
mod routing;
mod routing_sources;
mod store;
mod telemetry;
