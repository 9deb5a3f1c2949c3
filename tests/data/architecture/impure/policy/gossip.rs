//! Deliberately wrong: a policy that reads files and clocks, rolls its own dice and talks. Never compiled.

use std::time::{Duration, Instant};

use crate::telemetry::names;

async fn choose() -> Duration {
    let _ = std::fs::read("a file");
    let _ = SystemTime::now();
    let _ = rand::rng();
    println!("chosen");
    Duration::from_secs(1)
}
