//! What a snapshot must satisfy before decisions rest on it: the document's own rules, the rank it is
//! configured for, and the clock.

use std::time::Duration;

use crate::{
    domain::{InstanceSpec, Snapshot, Timestamp},
    wire,
};

/// Returns what is wrong with a snapshot; absent: nothing.
pub(super) fn fault(
    snapshot: &Snapshot,
    spec: &InstanceSpec,
    received: Timestamp,
    lead: Duration,
) -> Option<String> {
    if let Err(error) = wire::snapshot::validate(snapshot) {
        return Some(error.to_string());
    }
    if snapshot.dp_rank != spec.dp_rank {
        let (told, asked) = (snapshot.dp_rank, spec.dp_rank);
        return Some(format!("it is of dp_rank {told}, the instance is configured as {asked}"));
    }
    (snapshot.captured_unix_us > received.after(lead)).then(|| {
        let ahead_s = snapshot.captured_unix_us.since(received).as_secs_f64();
        format!("it was captured {ahead_s:.3} s ahead of its receipt; check the hosts' clocks")
    })
}
