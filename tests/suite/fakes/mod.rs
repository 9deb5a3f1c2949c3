//! Everything a gateway test needs: scripted upstreams on loopback ports and one app in front of them.

mod app;
mod upstream;

pub(crate) use app::{Options, TestApp, chat};
pub(crate) use upstream::{Step, Upstreams, chunk, eventually};
