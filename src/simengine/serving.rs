//! Starting and ending a simulated engine on a port.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{
    SimEngineError,
    connections::{self, KEEP_ALIVE},
    http::router,
    owner::{self, Identity, Lag},
    server::Server,
};
use crate::{
    domain::Now,
    telemetry::clock::LiveClock,
    truth::{
        Profile,
        stepping::{Stepping, TimeScale},
    },
};

/// Longest wait for clients at the end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// How to serve a profile.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
    /// Simulated seconds a real second; over 1 is faster.
    pub time_scale: f64,
    /// Fixes lengths, words, delays and noise.
    pub seed: u64,
    /// The instance's name in snapshots; absent: the model's name and `-0`.
    pub name: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_string(), port: 0, time_scale: 1.0, seed: 1, name: None }
    }
}

/// A serving engine. Dropping it ends the engine and its answers.
pub struct Handle {
    addr: SocketAddr,
    lag: Lag,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Handle {
    /// Returns the bound address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns how late the engine lately ran, on average. Over a few milliseconds the machine is too slow
    /// for its load, and times are longer than the profile's.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.lag.mean()
    }

    /// Ends the engine: answers under way break off. A client that reads no more is waited for
    /// two seconds at most.
    pub async fn shutdown(mut self) {
        _ = self.stop.send(true);
        if tokio::time::timeout(SHUTDOWN_GRACE, &mut self.serving).await.is_err() {
            self.serving.abort();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        _ = self.stop.send(true);
    }
}

/// Starts an engine and returns once it listens.
///
/// # Errors
/// Fails on a time scale that is not positive, an engine that cannot be built and an address that cannot be
/// bound.
pub async fn spawn(profile: Profile, options: Options) -> Result<Handle, SimEngineError> {
    if !(options.time_scale.is_finite() && options.time_scale > 0.0) {
        return Err(SimEngineError::TimeScale { value: options.time_scale });
    }
    let address = format!("{}:{}", options.host, options.port);
    let bind = |source| SimEngineError::Bind { address: address.clone(), source };
    let listener = TcpListener::bind((options.host.as_str(), options.port)).await.map_err(bind)?;
    let addr = listener.local_addr().map_err(bind)?;
    let clock: Arc<dyn Now> = Arc::new(LiveClock::new());
    let origin = clock.now();
    let scale = TimeScale { origin, factor: options.time_scale };
    let stepping = Stepping::new(&profile, options.seed, scale)?;
    let identity = Identity {
        instance: options.name.unwrap_or_else(|| format!("{}-0", profile.model)),
        nonce: format!("{:x}", origin.unix_us()),
    };
    let (stop, stopped) = watch::channel(false);
    let handle = owner::start(stepping, identity, scale, clock, stopped.clone());
    let lag = handle.lag();
    let server = Arc::new(Server::new(profile, options.seed, handle, origin.unix_us() / 1_000_000));
    let serving = tokio::spawn(connections::serve(listener, router(server), KEEP_ALIVE, stopped));
    Ok(Handle { addr, lag, stop, serving })
}
