//! Polls `GET address` for one JSON document, over a kept connection, at its own period; backs off
//! while the address fails.

use std::{future::Future, pin::Pin, time::Duration};

use reqwest::Client;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Delivery, SnapshotConfig, Source, SourceError};
use crate::{telemetry::without_secrets, wire};

/// The longest pause between two tries while the address fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The longest a poll may take.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest document read: thousands of residents are well under a mebibyte.
const MAX_BYTES: usize = 16 << 20;

/// A polled address.
pub struct Http {
    client: Client,
    address: String,
    /// The address as errors and logs show it.
    shown: String,
    period: Duration,
    /// Made at the first poll, since it needs the runtime.
    ticks: Option<Interval>,
    failures: u32,
}

impl Http {
    /// Makes the source; nothing is sent before the first poll.
    ///
    /// # Errors
    /// [`SourceError::Config`] where the address is missing or no HTTP URL, or the period is 0.
    pub fn new(config: &SnapshotConfig) -> Result<Self, SourceError> {
        let wrong = |why: &str| SourceError::Config { name: "http", why: why.to_owned() };
        let address = config.address.clone().ok_or_else(|| wrong("it needs an `address`"))?;
        let shown = without_secrets(&address);
        let url = reqwest::Url::parse(&address)
            .map_err(|error| wrong(&format!("`address` is `{shown}`: {error}")))?;
        if url.scheme() != "http" {
            return Err(wrong(&format!("`address` is `{shown}`; it must start with http://")));
        }
        if config.period_ms == 0 {
            return Err(wrong("`period_ms` is 0; give the time between two polls, such as 20"));
        }
        let client = Client::builder()
            .no_proxy()
            .timeout(POLL_TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(|source| SourceError::Request { address: shown.clone(), source })?;
        let period = Duration::from_millis(config.period_ms);
        Ok(Self { client, address, shown, period, ticks: None, failures: 0 })
    }

    async fn poll(&self) -> Delivery {
        let failed = |source: reqwest::Error| SourceError::Request {
            address: self.shown.clone(),
            source: source.without_url(),
        };
        let mut answer = self.client.get(&self.address).send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(SourceError::Status {
                address: self.shown.clone(),
                status: answer.status().as_u16(),
            });
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                return Err(SourceError::TooLarge { address: self.shown.clone(), max_bytes: MAX_BYTES });
            }
        }
        wire::snapshot::decode(&body)
            .map_err(|source| SourceError::Invalid { address: self.shown.clone(), source })
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
            let period = self.period;
            let ticks = self.ticks.get_or_insert_with(|| {
                let mut ticks = interval(period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ticks
            });
            ticks.tick().await;
            let delivery = self.poll().await;
            self.failures = if delivery.is_ok() { 0 } else { self.failures.saturating_add(1) };
            if self.failures > 0 {
                let pause = self.pause();
                if let Some(ticks) = &mut self.ticks {
                    ticks.reset_after(pause);
                }
            }
            delivery
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(address: Option<&str>, period_ms: u64) -> Result<Http, String> {
        let config =
            SnapshotConfig { source: String::from("http"), address: address.map(str::to_owned), period_ms };
        Http::new(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_that_cannot_work_says_what_to_change() {
        let error = |address, period_ms| http(address, period_ms).err().unwrap();
        assert!(error(None, 20).contains("needs an `address`"));
        assert!(error(Some("not a url"), 20).contains("`not a url`"));
        assert!(error(Some("https://engine/snapshot"), 20).contains("http://"));
        assert!(error(Some("https://u:pw@engine/snapshot"), 20).contains("https://u:***@engine/snapshot"));
        assert!(error(Some("http://127.0.0.1:1/s"), 0).contains("period_ms"));
    }

    #[test]
    fn the_pause_doubles_with_each_failure_up_to_its_limit() {
        let mut http = http(Some("http://127.0.0.1:1/s"), 20).unwrap();
        let mut pauses_ms = Vec::new();
        for failures in [1, 2, 3, 6, 7, 1000] {
            http.failures = failures;
            pauses_ms.push(http.pause().as_millis());
        }
        assert_eq!(pauses_ms, [40, 80, 160, 1280, 2000, 2000]);
        http.period = Duration::from_secs(5);
        assert_eq!(http.pause(), Duration::from_secs(5), "never shorter than the period");
    }
}
