//! The list of sources and how an instance's configuration names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Http, Source, SourceError};

/// An instance's `snapshots` section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotConfig {
    /// A name of [`SOURCES`].
    pub source: String,
    /// Where the source listens or polls; null for `ledger`.
    pub address: Option<String>,
    /// Time between two snapshots, milliseconds.
    pub period_ms: u64,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        Self { source: String::from("ledger"), address: None, period_ms: 20 }
    }
}

/// Makes a source; none where nothing is to be awaited.
type Build = fn(&SnapshotConfig) -> Result<Option<Box<dyn Source>>, SourceError>;

/// One line of [`SOURCES`].
pub struct SourceEntry {
    /// The registered name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Makes it; none where nothing is to be awaited.
    pub build: Build,
}

/// Every source, sorted by name.
pub const SOURCES: &[SourceEntry] = &[
    SourceEntry {
        name: "http",
        summary: "polls a URL for one JSON document",
        build: |config| Http::new(config).map(|http| Some(Box::new(http) as Box<dyn Source>)),
    },
    SourceEntry {
        name: "ledger",
        summary: "no snapshots: the state is rebuilt from what this router sent",
        build: |_| Ok(None),
    },
];

impl SnapshotConfig {
    /// Makes the source; none for `ledger`.
    ///
    /// # Errors
    /// [`SourceError`] where the name is unknown or the section does not fit the source.
    pub fn build(&self) -> Result<Option<Box<dyn Source>>, SourceError> {
        let entry = SOURCES.iter().find(|entry| entry.name == self.source);
        let entry = entry.ok_or_else(|| SourceError::Unknown {
            name: self.source.clone(),
            known: SOURCES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
        })?;
        (entry.build)(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_source_is_an_error_that_lists_the_known() {
        let config = SnapshotConfig { source: String::from("htpp"), ..SnapshotConfig::default() };
        let error = config.build().err().unwrap().to_string();
        assert!(error.contains("`htpp`") && error.contains("http, ledger"), "{error}");
    }

    #[test]
    fn the_ledger_needs_no_source() {
        assert!(SnapshotConfig::default().build().unwrap().is_none());
    }
}
