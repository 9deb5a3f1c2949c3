//! Where the random draws of decisions come from.

use std::sync::{Mutex, PoisonError};

use rand::RngCore;

/// The generator that decisions draw from.
#[derive(Default)]
pub enum Dice {
    /// Each thread's own, seeded by the system.
    #[default]
    Own,
    /// One for all requests: whoever seeded it can foretell the draws of requests that come one by one.
    /// Decisions wait for each other.
    Shared(Mutex<Box<dyn RngCore + Send>>),
}

impl Dice {
    /// Shares one generator.
    #[must_use]
    pub fn shared(generator: impl RngCore + Send + 'static) -> Self {
        Self::Shared(Mutex::new(Box::new(generator)))
    }

    /// Lends the generator to one decision.
    pub(super) fn lend<T>(&self, decide: impl FnOnce(&mut dyn RngCore) -> T) -> T {
        match self {
            Self::Own => decide(&mut rand::rng()),
            Self::Shared(generator) => {
                decide(&mut **generator.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}
