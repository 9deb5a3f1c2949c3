//! The task that carries one source's snapshots to the pool.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::Source;
use crate::{
    domain::{InstanceId, Now},
    pool::{Pool, PoolError},
};

/// Runs a source for instance `i` of the pool until the handle is aborted or the runtime ends.
///
/// The pool hears of each snapshot and of each time the source is lost; the log hears of each kind of
/// trouble once, until snapshots work again.
pub fn spawn(mut source: Box<dyn Source>, pool: Arc<Pool>, i: usize, clock: Arc<dyn Now>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let instance = pool.spec(i).id.clone();
        let mut known: Vec<&'static str> = Vec::new();
        loop {
            let delivered = source.next().await;
            let now = clock.now();
            let trouble = match delivered {
                Ok(snapshot) => {
                    pool.publish(i, snapshot, now).err().map(|error| (kind(&error), error.to_string()))
                }
                Err(lost) => {
                    pool.source_lost(i, now);
                    Some(("lost", lost.to_string()))
                }
            };
            report(&instance, &mut known, trouble);
        }
    })
}

/// Returns which kind of refusal it is.
const fn kind(error: &PoolError) -> &'static str {
    match error {
        PoolError::Implausible { why, .. } => why.label(),
        _ => "refused",
    }
}

/// Logs each kind of trouble once, and its end. `known` are the kinds since snapshots last worked.
fn report(instance: &InstanceId, known: &mut Vec<&'static str>, trouble: Option<(&'static str, String)>) {
    match trouble {
        Some((kind, why)) if !known.contains(&kind) => {
            tracing::warn!(%instance, kind, why, "no snapshots; routing on what is known");
            known.push(kind);
        }
        None if !known.is_empty() => {
            tracing::info!(%instance, "snapshots are back");
            known.clear();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_is_told_once_until_snapshots_are_back() {
        let instance = InstanceId::from("i");
        let mut known = Vec::new();
        let mut told = |kind: Option<&'static str>| {
            report(&instance, &mut known, kind.map(|kind| (kind, String::new())));
            known.clone()
        };
        assert_eq!(told(Some("lost")), ["lost"]);
        assert_eq!(told(Some("clock-behind")), ["lost", "clock-behind"]);
        assert_eq!(told(Some("lost")), ["lost", "clock-behind"]);
        assert!(told(None).is_empty());
    }
}
