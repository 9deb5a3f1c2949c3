//! Why a store could not do what was asked, in words that say what to try.

use thiserror::Error;

/// Why a store could not do what was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The URL names no known database.
    #[error(
        "no store for `{url}`: known forms are {known} (hint: sqlite://FILE keeps decisions in one file)"
    )]
    UnknownScheme {
        /// As given, secrets hidden.
        url: String,
        /// The registered forms.
        known: String,
    },
    /// The database cannot be opened or its tables cannot be made.
    #[error(
        "cannot open the store `{url}` at {place} (hint: check the name, and that the folder exists and is writable)"
    )]
    Open {
        /// As given, secrets hidden.
        url: String,
        /// Where that is: a file's whole path, or a host.
        place: String,
        /// The database's word.
        source: sqlx::Error,
    },
    /// The tables cannot be brought to the present schema.
    #[error(
        "cannot migrate the store `{url}` (hint: it was written by another version of bear: keep it aside, or name a new one)"
    )]
    Migrate {
        /// As given, secrets hidden.
        url: String,
        /// The database's word.
        source: sqlx::migrate::MigrateError,
    },
    /// The database went away under an open connection.
    #[error("the store `{url}` was removed or replaced while open")]
    Gone {
        /// As given, secrets hidden.
        url: String,
    },
    /// A query failed.
    #[error("the store failed to {action}")]
    Query {
        /// What was tried.
        action: &'static str,
        /// The database's word.
        source: sqlx::Error,
    },
    /// A write took too long.
    #[error("the store took more than {limit_s} s to write")]
    Late {
        /// The limit, seconds.
        limit_s: u64,
    },
    /// A row holds what the store cannot keep or read back.
    #[error("the row of attempt `{attempt_id}` cannot be {action}")]
    Row {
        /// The attempt.
        attempt_id: String,
        /// `written` or `read`.
        action: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
}
