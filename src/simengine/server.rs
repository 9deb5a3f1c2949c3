//! What every route of one served engine shares.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{error::ApiError, owner::OwnerHandle, plan::Draw};
use crate::truth::Profile;

/// One served engine.
pub(super) struct Server {
    /// Its truth.
    pub(super) profile: Profile,
    /// Fixes lengths, words, delays and noise.
    pub(super) seed: u64,
    /// When it started, Unix seconds.
    pub(super) started_unix_s: u64,
    /// The task that owns the engine.
    pub(super) owner: OwnerHandle,
    arrivals: AtomicU64,
}

impl Server {
    /// Wraps a started engine.
    #[must_use]
    pub(super) const fn new(profile: Profile, seed: u64, owner: OwnerHandle, started_unix_s: u64) -> Self {
        Self { profile, seed, started_unix_s, owner, arrivals: AtomicU64::new(0) }
    }

    /// Takes the next place in the order of arrival.
    pub(super) fn next_draw(&self) -> Draw {
        Draw { seed: self.seed, number: self.arrivals.fetch_add(1, Ordering::Relaxed) }
    }

    /// Refuses any model but the served one.
    ///
    /// # Errors
    /// [`ApiError`] 404.
    pub(super) fn check_model(&self, model: &str) -> Result<(), ApiError> {
        if model == self.profile.model {
            return Ok(());
        }
        let message =
            format!("The model `{model}` does not exist; this engine serves `{}`.", self.profile.model);
        Err(ApiError::not_found(message).with_param("model"))
    }
}
