//! Where snapshots come from: a source a folder file delivers them, [`spawn`] hands them to the pool.
//!
//! A source that is down or slow never holds a request up: the pool degrades to what it knows.

mod http;
mod registry;
mod run;

use std::{future::Future, pin::Pin};

pub use http::Http;
pub use registry::{SOURCES, SnapshotConfig, SourceEntry};
pub use run::spawn;

use crate::{domain::Snapshot, wire};

/// What a source's future yields.
pub type Delivery = Result<Snapshot, SourceError>;

/// Delivers the snapshots of one instance.
pub trait Source: Send {
    /// Waits for the next snapshot, at the source's own pace; after an error it backs off by itself.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Delivery> + Send + '_>>;
}

/// Why a source cannot be made or has no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No source has that name.
    #[error("unknown snapshot source `{name}`; known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The registered names.
        known: String,
    },
    /// The configuration of a source does not fit it.
    #[error("snapshot source `{name}`: {why}")]
    Config {
        /// The source.
        name: &'static str,
        /// What does not fit, with a hint.
        why: String,
    },
    /// The HTTP request failed.
    #[error("GET {address}: {source}")]
    Request {
        /// The address.
        address: String,
        /// What the client said.
        source: reqwest::Error,
    },
    /// The answer has another status than 200.
    #[error("GET {address} answered {status}")]
    Status {
        /// The address.
        address: String,
        /// The status.
        status: u16,
    },
    /// The answer is too large for a snapshot.
    #[error("GET {address} answered more than {max_bytes} bytes")]
    TooLarge {
        /// The address.
        address: String,
        /// The most that is read.
        max_bytes: usize,
    },
    /// The document is not a snapshot.
    #[error("GET {address} gave no valid snapshot: {source}")]
    Invalid {
        /// The address.
        address: String,
        /// What is wrong, with its place.
        source: wire::snapshot::SnapshotError,
    },
}
