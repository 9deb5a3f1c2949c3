//! Simulation on every core.

use std::{
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

/// Returns how many runs are played at once: as many as asked for, else one a core.
pub(super) fn count(jobs: Option<u16>) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    jobs.map_or_else(cores, usize::from)
}

/// Does `work` on items, which are taken in order, on so many threads, and hands each outcome with its item's place
/// to `take` as it comes.
///
/// A thread whose work failed takes no more, and whatever comes before a failed item is being worked on.
///
/// # Errors
/// The first of `take`, after which no item is begun.
pub(super) fn on_each<T: Sync, R: Send, E: Send, F>(
    items: &[T],
    workers: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
    mut take: impl FnMut(usize, Result<R, E>) -> Result<(), F>,
) -> Result<(), F> {
    let queue = Mutex::new(items.iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let (finished, outcomes) = mpsc::channel();
        for _ in 0..workers.clamp(1, items.len().max(1)) {
            let (finished, next, work) = (finished.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((i, item)) = next() {
                    let outcome = work(item);
                    let failed = outcome.is_err();
                    if finished.send((i, outcome)).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(finished);
        for (i, outcome) in outcomes {
            take(i, outcome)?;
        }
        Ok(())
    })
}
