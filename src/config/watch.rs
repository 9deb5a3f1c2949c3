//! Shows the pool's state as metrics, once a second.

use std::{sync::Arc, time::Duration};

use metrics::{counter, gauge};
use tokio::{task::JoinHandle, time::interval};

use crate::{
    domain::Now,
    pool::{Breaker, Pool},
    telemetry::names::{self, label},
};

/// Well under any scrape interval.
const PERIOD: Duration = Duration::from_secs(1);

/// Starts the task that shows snapshot ages, snapshot counts and who may be chosen.
pub(super) fn watch(pool: Arc<Pool>, clock: Arc<dyn Now>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = interval(PERIOD);
        loop {
            ticks.tick().await;
            (0..pool.len()).for_each(|i| show(&pool, i, clock.as_ref()));
        }
    })
}

fn show(pool: &Pool, i: usize, clock: &dyn Now) {
    let instance = pool.spec(i).id.as_str().to_owned();
    let now = clock.now();
    let usable = pool.usable(i, now).is_ok();
    gauge!(names::USABLE.name, label::INSTANCE => instance.clone()).set(f64::from(u8::from(usable)));
    if let Some(breaker) = pool.breaker(i, now) {
        let state = match breaker {
            Breaker::Closed => 0.0,
            Breaker::Probing => 1.0,
            Breaker::Open => 2.0,
        };
        gauge!(names::BREAKER.name, label::INSTANCE => instance.clone()).set(state);
    }
    let Some(status) = pool.source_status(i) else { return };
    // An instance without snapshots has no age: absent, not zero.
    if let Some(captured) = status.captured {
        let age_s = now.since(captured).as_secs_f64();
        gauge!(names::SNAPSHOT_AGE.name, label::INSTANCE => instance.clone()).set(age_s);
    }
    let outcomes = [("accepted", status.accepted), ("ignored", status.ignored), ("refused", status.refused)];
    for (outcome, count) in outcomes {
        counter!(names::SNAPSHOTS.name, label::INSTANCE => instance.clone(), label::OUTCOME => outcome)
            .absolute(count);
    }
}
