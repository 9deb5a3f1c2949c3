//! Deliberately wrong: floor 1 reaches up, once in each way of writing it. Never compiled.

use crate::{domain::Snapshot, policy::Choice};

mod inner {
    use super::super::super::router::Router;
}

/// A path in code counts; `crate::pool` in a comment does not.
fn climb() -> &'static str {
    let _ = crate::gateway::serve();
    vec![crate::latency::ESTIMATORS];
    "crate::config"
}
