//! Verdicts and their reasons, written by people who looked at the figures.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::Deserialize;

use super::{list::FIGURES, paper};

/// The notes, by figure or row.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Notes(BTreeMap<String, Note>);

/// One note.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    /// Whether ours agrees with the paper's.
    pub(super) verdict: Verdict,
    /// Why.
    #[serde(default)]
    pub(super) text: String,
}

/// Whether ours agrees with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It does.
    Agrees,
    /// It does not.
    Differs,
}

impl Notes {
    /// Parses notes.
    ///
    /// # Errors
    /// The text is no notes, or a key names neither a figure nor a row.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let notes: Self = serde_saphyr::from_str(text)?;
        let known: Vec<String> = FIGURES
            .iter()
            .map(super::list::FigureEntry::id)
            .chain(paper::ROWS.iter().map(paper::Row::id))
            .collect();
        for key in notes.0.keys() {
            ensure!(known.contains(key), "`{key}` is no figure or row; known ones are {}", known.join(", "));
        }
        Ok(notes)
    }

    /// Returns the note of a figure.
    pub(super) fn figure(&self, id: &str) -> Option<&Note> {
        self.0.get(id)
    }

    /// Returns the note of a row; without one, that of its figure.
    pub(super) fn row(&self, id: &str) -> Option<&Note> {
        let figure = id.split('/').next().unwrap_or(id);
        self.0.get(id).or_else(|| self.0.get(figure))
    }
}
