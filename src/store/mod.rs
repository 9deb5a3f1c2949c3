//! Where decisions are kept: one trait, one file a database, and a recorder that never slows a request.
//!
//! [`Recorder::record`] puts a row into a bounded queue and returns; a writer task owns the database.
//! When the database is slow, gone or full, rows are counted and dropped, and requests flow on. To add
//! a database, implement [`Store`] in one file, list it in [`STORES`] and join it to the shared suite
//! in `tests/suite/store.rs`.

mod error;
mod features;
mod recorder;
mod row;
mod sqlite;

use std::{future::Future, pin::Pin, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{domain::Timestamp, telemetry::without_secrets};

pub use error::StoreError;
pub use features::LoggedFeatures;
pub use recorder::{Recorder, RecorderStats};
pub use row::{DecisionRow, LoggedQuery, Origin};
pub use sqlite::SqliteStore;

/// A boxed future of a store's answer.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A database of decision rows.
pub trait Store: Send + Sync {
    /// Appends rows in one transaction; a row whose attempt id is already there is left as it is.
    fn append<'a>(&'a self, rows: &'a [DecisionRow]) -> StoreFuture<'a, ()>;
    /// Returns the rows of a request, one an attempt, oldest first; empty: unknown request.
    fn attempts<'a>(&'a self, request_id: &'a str) -> StoreFuture<'a, Vec<DecisionRow>>;
    /// Returns up to `limit` rows with their cursors in the `order` told, past the cursor if one is given.
    fn page(
        &self,
        order: Order,
        past: Option<Cursor>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(Cursor, DecisionRow)>>;
    /// Deletes rows decided before the given instant and returns how many.
    fn prune(&self, before: Timestamp) -> StoreFuture<'_, u64>;

    /// Returns the last attempt of a request; absent: unknown request.
    fn decision<'a>(&'a self, request_id: &'a str) -> StoreFuture<'a, Option<DecisionRow>> {
        Box::pin(async move { Ok(self.attempts(request_id).await?.pop()) })
    }

    /// Returns up to `limit` rows, newest first.
    fn recent(&self, limit: u32) -> StoreFuture<'_, Vec<DecisionRow>> {
        Box::pin(async move {
            let page = self.page(Order::NewestFirst, None, limit).await?;
            Ok(page.into_iter().map(|(_, row)| row).collect())
        })
    }
}

/// A row's place in the order of writing; only compared within one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub i64);

/// The order of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order of writing.
    OldestFirst,
    /// Against the order of writing.
    NewestFirst,
}

/// Where and how decisions are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// The database's URL; null keeps nothing.
    pub url: Option<String>,
    /// Whether prompt texts are stored with their decisions.
    pub keep_prompts: bool,
    /// Rows that may wait for the writer; past it they are dropped and counted.
    pub queue: usize,
    /// Memory that waiting rows may hold, MiB, about; past it they are dropped and counted.
    pub queue_mib: u32,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { url: Some("sqlite://bear.db".into()), keep_prompts: false, queue: 10_000, queue_mib: 64 }
    }
}

/// What opening does where there is no database yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Makes it.
    Create,
    /// Fails: a mistyped name is not to become an empty database.
    Fail,
}

/// Opens a store by its URL.
pub type OpenStore = fn(url: String, missing: IfMissing) -> StoreFuture<'static, Arc<dyn Store>>;

/// One kind of database.
#[derive(Debug)]
pub struct StoreEntry {
    /// What its URLs start with.
    pub scheme: &'static str,
    /// What it is, one line.
    pub summary: &'static str,
    /// Opens it and brings its tables to the present schema.
    pub open: OpenStore,
}

/// Every kind of database, sorted by scheme.
pub const STORES: &[StoreEntry] = &[StoreEntry {
    scheme: "sqlite:",
    summary: "one file beside the router (sqlite://FILE)",
    open: sqlite::open,
}];

/// Finds the kind of database that a URL names.
///
/// # Errors
/// [`StoreError::UnknownScheme`] where none does.
pub fn entry(url: &str) -> Result<&'static StoreEntry, StoreError> {
    STORES.iter().find(|entry| url.starts_with(entry.scheme)).ok_or_else(|| StoreError::UnknownScheme {
        url: without_secrets(url),
        known: STORES.iter().map(|entry| entry.scheme).collect::<Vec<_>>().join(", "),
    })
}

/// Opens the store at a URL and brings its tables to the present schema.
///
/// # Errors
/// An unknown scheme, or a database that cannot be opened or migrated.
pub async fn open(url: &str, missing: IfMissing) -> Result<Arc<dyn Store>, StoreError> {
    (entry(url)?.open)(url.into(), missing).await
}
