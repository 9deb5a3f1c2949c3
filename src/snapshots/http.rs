//! Polls `GET address` for one JSON document, over a kept connection, at its own period; backs off
//! while the address fails.

use std::{future::Future, pin::Pin, time::Duration};

use reqwest::Client;
use tokio::time::{MissedTickBehavior, interval};

use super::{Delivery, SnapshotConfig, Source, SourceError};
use crate::wire;

/// The longest pause between two tries while the address fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The longest a poll may take.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// A polled address.
pub struct Http {
    client: Client,
    address: String,
    period: Duration,
    ticks: tokio::time::Interval,
    failures: u32,
}

impl Http {
    /// Makes the source. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// [`SourceError::Config`] where the address is missing or no HTTP URL, or the period is 0.
    pub fn new(config: &SnapshotConfig) -> Result<Self, SourceError> {
        let wrong = |why: &str| SourceError::Config { name: "http", why: why.to_owned() };
        let address = config.address.clone().ok_or_else(|| wrong("it needs an `address`"))?;
        let url = reqwest::Url::parse(&address)
            .map_err(|error| wrong(&format!("`address` is `{address}`: {error}")))?;
        if url.scheme() != "http" {
            return Err(wrong(&format!("`address` is `{address}`; it must start with http://")));
        }
        if config.period_ms == 0 {
            return Err(wrong("`period_ms` is 0; give the time between two polls, such as 20"));
        }
        let client = Client::builder()
            .no_proxy()
            .timeout(POLL_TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(|source| SourceError::Request { address: address.clone(), source })?;
        let period = Duration::from_millis(config.period_ms);
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { client, address, period, ticks, failures: 0 })
    }

    async fn poll(&self) -> Delivery {
        let failed = |source| SourceError::Request { address: self.address.clone(), source };
        let answer = self.client.get(&self.address).send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(SourceError::Status {
                address: self.address.clone(),
                status: answer.status().as_u16(),
            });
        }
        let body = answer.bytes().await.map_err(failed)?;
        wire::snapshot::decode(&body)
            .map_err(|source| SourceError::Invalid { address: self.address.clone(), source })
    }

    /// Doubles the pause with each failure in a row, from the period to [`LONGEST_PAUSE`].
    fn pause(&self) -> Duration {
        let doubled = self.period.saturating_mul(1 << self.failures.min(16));
        doubled.min(LONGEST_PAUSE.max(self.period))
    }
}

impl Source for Http {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Delivery> + Send + '_>> {
        Box::pin(async move {
            self.ticks.tick().await;
            let delivery = self.poll().await;
            match delivery {
                Ok(_) => self.failures = 0,
                Err(_) => {
                    self.failures = self.failures.saturating_add(1);
                    self.ticks.reset_after(self.pause());
                }
            }
            delivery
        })
    }
}
