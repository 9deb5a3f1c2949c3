//! Whether an instance may be chosen: draining by an operator, and a breaker over transport failures.

use std::sync::{Mutex, PoisonError};

use crate::{domain::Timestamp, pool::PoolConfig};

/// The state of an instance's breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// Requests flow.
    Closed,
    /// The cool-down has passed: one probe goes, or is out.
    Probing,
    /// Requests are kept away until the cool-down has passed.
    Open,
}

/// One instance's health.
#[derive(Debug, Default)]
pub(super) struct Health {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    draining: bool,
    failures: u32,
    /// Set while the breaker is open: when the next probe may go.
    open_until: Option<Timestamp>,
    /// A probe is out and has until this time to report.
    probing_until: Option<Timestamp>,
}

impl Health {
    /// Returns whether the instance may be chosen now; the reason why not otherwise.
    pub(super) fn usable(&self, now: Timestamp) -> Result<(), &'static str> {
        let state = self.lock();
        if state.draining {
            return Err("draining");
        }
        match (state.open_until, state.probing_until) {
            (Some(until), _) if now < until => Err("breaker open after repeated failures"),
            (Some(_), Some(until)) if now < until => Err("breaker half open, a probe is out"),
            _ => Ok(()),
        }
    }

    /// Returns the breaker's state.
    pub(super) fn breaker(&self, now: Timestamp) -> Breaker {
        match self.lock().open_until {
            None => Breaker::Closed,
            Some(until) if now < until => Breaker::Open,
            Some(_) => Breaker::Probing,
        }
    }

    /// Marks that a request goes out; past an open breaker's cool-down it is the one probe.
    pub(super) fn dispatched(&self, now: Timestamp, config: &PoolConfig) {
        let mut state = self.lock();
        if state.open_until.is_some_and(|until| now >= until) {
            state.probing_until = Some(now.after(cooldown(config)));
        }
    }

    /// Counts a connect error, time-out or 5xx; returns whether the breaker opened by it.
    pub(super) fn failed(&self, now: Timestamp, config: &PoolConfig) -> bool {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        state.probing_until = None;
        let opens = config.breaker_failures > 0 && state.failures >= config.breaker_failures;
        let was_closed = state.open_until.is_none();
        if opens {
            state.open_until = Some(now.after(cooldown(config)));
        }
        opens && was_closed
    }

    /// Closes the breaker: the instance answered.
    pub(super) fn succeeded(&self) {
        let mut state = self.lock();
        state.failures = 0;
        state.open_until = None;
        state.probing_until = None;
    }

    /// Sets or clears draining.
    pub(super) fn set_draining(&self, draining: bool) {
        self.lock().draining = draining;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cooldown(config: &PoolConfig) -> std::time::Duration {
    std::time::Duration::from_millis(config.breaker_cooldown_ms)
}
