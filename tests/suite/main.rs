//! The one integration binary: what the rooms promise each other, checked from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod architecture;
mod predict;
