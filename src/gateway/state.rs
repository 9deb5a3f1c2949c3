//! What all requests share: the router, the instances' addresses, the client, and the limits.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Uri, uri::PathAndQuery};
use tokio::sync::Semaphore;

use super::{
    GatewayConfig, GatewayError,
    config::{Limits, UpstreamAuthorization},
    connector::{self, Client},
    dice::Dice,
    record::Meters,
    tokenize::Tokenizers,
};
use crate::{
    domain::Now,
    predict::Predictor,
    router::Router,
    store::Recorder,
    telemetry::{prometheus::Exposition, without_secrets},
};

/// What a gateway is made of.
pub struct Parts {
    /// Who decides.
    pub router: Arc<Router>,
    /// One base address an instance, in pool order.
    pub urls: Vec<String>,
    /// How prompts are counted, in model order.
    pub tokenizers: Tokenizers,
    /// Who makes the features; the one that the router predicts with.
    pub predictor: Arc<ArcSwap<Predictor>>,
    /// Who keeps decision rows.
    pub recorder: Recorder,
    /// The clock.
    pub clock: Arc<dyn Now>,
    /// What decisions draw from.
    pub dice: Dice,
    /// What `/metrics` shows; absent: a 404.
    pub metrics: Option<Exposition>,
}

/// The gateway's state, shared by all requests.
pub struct Gateway {
    pub(super) router: Arc<Router>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) client: Client,
    pub(super) tokenizers: Arc<Tokenizers>,
    pub(super) predictor: Arc<ArcSwap<Predictor>>,
    pub(super) recorder: Recorder,
    pub(super) clock: Arc<dyn Now>,
    pub(super) dice: Dice,
    pub(super) exposition: Option<Exposition>,
    pub(super) meters: Arc<Meters>,
    pub(super) config: GatewayConfig,
    pub(super) limits: Limits,
    pub(super) authorization: UpstreamAuthorization,
    /// Bounds the prompts being counted at once to the processors there are.
    pub(super) describing: Arc<Semaphore>,
}

impl Gateway {
    /// Puts a gateway together. Metrics go to the recorder installed by now.
    ///
    /// # Errors
    /// [`GatewayError`] naming the part.
    pub fn new(parts: Parts, config: GatewayConfig) -> Result<Self, GatewayError> {
        let instances = parts.router.pool().len();
        if parts.urls.len() != instances {
            return Err(GatewayError::Count { urls: parts.urls.len(), instances });
        }
        let upstreams = parts.urls.iter().map(|url| Upstream::parse(url)).collect::<Result<_, _>>()?;
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Ok(Self {
            client: connector::client(&config.upstream)?,
            limits: config.upstream.limits()?,
            authorization: config.upstream.authorization.resolve()?,
            meters: Arc::new(Meters::new(parts.router.pool())),
            router: parts.router,
            upstreams,
            tokenizers: Arc::new(parts.tokenizers),
            predictor: parts.predictor,
            recorder: parts.recorder,
            clock: parts.clock,
            dice: parts.dice,
            exposition: parts.metrics,
            config,
            describing: Arc::new(Semaphore::new(processors)),
        })
    }
}

/// Where one instance is.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    pub(super) base: Uri,
    prefix: String,
}

impl Upstream {
    fn parse(url: &str) -> Result<Self, GatewayError> {
        let bad = || GatewayError::Url { url: without_secrets(url) };
        let base: Uri = url.trim_end_matches('/').parse().map_err(|_| bad())?;
        let known = matches!(base.scheme_str(), Some("http" | "https"));
        if !known || base.authority().is_none() || base.query().is_some() {
            return Err(bad());
        }
        let prefix = base.path().trim_end_matches('/').to_owned();
        Ok(Self { base, prefix })
    }

    /// Returns the address of a path below the base.
    pub(super) fn uri(&self, path_and_query: &str) -> Option<Uri> {
        let path: PathAndQuery = format!("{}{path_and_query}", self.prefix).parse().ok()?;
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_join_with_paths() {
        let uri = |url: &str| Upstream::parse(url).unwrap().uri("/v1/x?y=1").unwrap().to_string();
        assert_eq!(uri("http://h:1"), "http://h:1/v1/x?y=1");
        assert_eq!(uri("https://h/a/b/"), "https://h/a/b/v1/x?y=1");
        for bad in ["h:1", "ftp://h", "http://", "http://h?x=1", ""] {
            assert!(Upstream::parse(bad).is_err(), "{bad}");
        }
    }
}
