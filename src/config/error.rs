//! Why a configuration cannot be used: the place, the problem and what to try.

use std::path::PathBuf;

use thiserror::Error;

use super::Place;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path} (hint: `bear serve --config FILE`; see config/examples)", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no YAML, or a value does not fit its key.
    #[error("{place}: {problem}")]
    Malformed {
        /// Where.
        place: Place,
        /// What is wrong there.
        problem: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key `{key}`; {suggestion}")]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// The nearest known key, or the known ones.
        suggestion: String,
    },
    /// A value that names something that does not exist.
    #[error("{place}: unknown {kind} `{name}`; {suggestion}")]
    UnknownName {
        /// Where.
        place: Place,
        /// What it should name.
        kind: &'static str,
        /// The name.
        name: String,
        /// The nearest known name, or the known ones.
        suggestion: String,
    },
    /// Two of a kind share a name.
    #[error("{place}: {kind} `{name}` is there twice; give each its own id")]
    Duplicate {
        /// Where the second stands.
        place: Place,
        /// `model` or `instance`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A value outside its range.
    #[error("{place}: `{key}` is {value}, but it is to be {expected}")]
    Range {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A room refuses its section.
    #[error("{place}: {source}")]
    Section {
        /// Where.
        place: Place,
        /// The room's word.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing to route to.
    #[error("the pool has no {what} (hint: list them under `{what}:`; config/examples shows whole pools)")]
    Empty {
        /// `models` or `instances`.
        what: &'static str,
    },
    /// A bundle's file cannot be read.
    #[error("{place}: cannot read the bundle file {path} (hint: `predictors.bundle` names a folder made by bear-train)", path = path.display())]
    BundleFile {
        /// Where the bundle is named.
        place: Place,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A bundle that was trained on made-up evaluations.
    #[error(
        "{place}: the bundle {path} was trained on synthetic evaluations and is for demonstrations only \
         (hint: train one on your own with bear-train, leave `predictors.bundle` out to use each model's prior, \
         or set `predictors.allow_synthetic: true`)",
        path = path.display()
    )]
    Synthetic {
        /// Where the bundle is named.
        place: Place,
        /// The folder.
        path: PathBuf,
    },
}
