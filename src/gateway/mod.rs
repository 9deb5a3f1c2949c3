//! The HTTP mouth of the router: OpenAI's API in, one instance's answer out.
//!
//! `flow.rs` is the page to read first. Nothing here decides where a request goes: `router/` does.

mod config;
mod connector;
mod describe;
mod dice;
mod error;
mod fault;
mod flow;
mod forward;
mod headers;
mod observe;
mod offload;
mod receive;
mod record;
mod routes;
mod server;
mod spans;
mod state;
mod stream;
pub mod tokenize;

pub use config::{Authorization, GatewayConfig, ListenConfig, UpstreamConfig};
pub use dice::Dice;
pub(crate) use error::why_ineligible;
pub use server::serve;
pub use state::{Gateway, Parts};

/// Why a gateway cannot be made of its parts.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An instance's address is no URL.
    #[error("`{url}` is no instance address (hint: like http://127.0.0.1:9001, a path prefix allowed)")]
    Url {
        /// As given.
        url: String,
    },
    /// The addresses and the pool's instances do not match.
    #[error("{urls} instance addresses were given for {instances} instances")]
    Count {
        /// Addresses.
        urls: usize,
        /// Instances.
        instances: usize,
    },
    /// A secret cannot be read or is no header value.
    #[error("no secret for upstream.authorization in {from}")]
    Secret {
        /// Where it was looked for.
        from: String,
    },
    /// A time-out is not positive.
    #[error("{key} is {value}; it must be a positive number of seconds")]
    TimeOut {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// A listener failed.
    #[error("the listener failed")]
    Listener(#[from] std::io::Error),
}
