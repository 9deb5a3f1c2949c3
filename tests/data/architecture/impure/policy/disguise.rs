//! Deliberately wrong: impurity behind other names. Never compiled.

use moka::sync::Cache;
use rand as dice;
use serde::Serialize;
use serde_json::{self as json};
use std as s;

struct Fields {
    metrics: Cache,
}

fn choose(fields: &Fields) {
    let _ = s::fs::read("a file");
    let _ = StdRng::from_os_rng();
    let _ = opentelemetry::global::tracer("policy");
    tracing_subscriber::fmt();
    let _ = fields.metrics;
}
