//! The task that carries one source's snapshots to the pool.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::Source;
use crate::{domain::Now, pool::Pool};

/// Runs a source for instance `i` of the pool until the handle is aborted or the runtime ends.
///
/// The pool hears of each snapshot and of each time the source is lost; the log hears of changes only.
pub fn spawn(mut source: Box<dyn Source>, pool: Arc<Pool>, i: usize, clock: Arc<dyn Now>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let instance = pool.spec(i).id.clone();
        let mut trouble: Option<String> = None;
        loop {
            let delivered = source.next().await;
            let now = clock.now();
            let failure = match delivered {
                Ok(snapshot) => pool.publish(i, snapshot, now).err().map(|refused| refused.to_string()),
                Err(lost) => {
                    pool.source_lost(i, now);
                    Some(lost.to_string())
                }
            };
            report(&instance, trouble.as_deref(), failure.as_deref());
            trouble = failure;
        }
    })
}

/// Logs a change between working and failing, either way.
fn report(instance: &crate::domain::InstanceId, before: Option<&str>, after: Option<&str>) {
    match (before, after) {
        (None, Some(why)) => tracing::warn!(%instance, why, "no snapshots; routing on what is known"),
        (Some(_), None) => tracing::info!(%instance, "snapshots are back"),
        _ => {}
    }
}
