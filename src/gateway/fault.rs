//! What can go wrong between the gateway and an instance, and what the instance's health hears of it.

use std::{fmt, sync::Arc};

use hyper_util::client::legacy;

use crate::{
    domain::{Ending, Now},
    pool::{Breaker, Pool},
};

/// One of the gateway's time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Connect,
    FirstByte,
    Idle,
    Total,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::FirstByte => "first-byte",
            Self::Idle => "idle",
            Self::Total => "total",
        })
    }
}

impl Limit {
    /// Returns whether an instance is at fault where it ran out: the total is the request's own.
    pub(super) fn blames_instance(self) -> bool {
        self != Self::Total
    }
}

/// Why an attempt gave no whole answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the request could not be sent: {}", causes(.0))]
    Send(#[source] legacy::Error),
    #[error("the answer could not be read: {}", causes(.0))]
    Read(#[source] hyper::Error),
    #[error("the stream ended before its first event")]
    Empty,
    #[error("the connection closed before the end of the stream")]
    NoMarker,
    #[error("{0} time-out")]
    TimedOut(Limit),
}

impl Fault {
    /// Returns how the attempt ended by it.
    pub(super) const fn ending(&self) -> Ending {
        match self {
            Self::TimedOut(_) => Ending::TimedOut,
            _ => Ending::Failed,
        }
    }

    /// Returns whether the instance is at fault.
    pub(super) fn blames_instance(&self) -> bool {
        !matches!(self, Self::TimedOut(limit) if !limit.blames_instance())
    }
}

/// Says an error with its causes, each once.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Tells the pool how one instance fares.
#[derive(Clone)]
pub(super) struct Health {
    pub(super) pool: Arc<Pool>,
    pub(super) clock: Arc<dyn Now>,
    pub(super) instance: usize,
}

impl Health {
    /// It failed to connect, to answer in time or to finish, or answered a 5xx.
    pub(super) fn failed(&self) {
        self.pool.report_connect_failure(self.instance, self.clock.now());
    }

    /// It answered in full, be it with a refusal.
    pub(super) fn answered(&self) {
        self.pool.report_success(self.instance);
    }

    /// Its answer began: that closes an open breaker, but does not make up for failures before it, for
    /// the answer may still break off.
    pub(super) fn began(&self) {
        let breaker = self.pool.breaker(self.instance, self.clock.now());
        if breaker.is_some_and(|breaker| breaker != Breaker::Closed) {
            self.answered();
        }
    }
}
