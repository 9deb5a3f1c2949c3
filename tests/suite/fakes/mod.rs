//! Everything a gateway test needs: scripted upstreams on loopback ports and one app in front of them.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod app;
mod upstream;

pub(crate) use app::{Options, TestApp, chat};
pub(crate) use upstream::{Step, Upstreams, chunk, eventually};
