//! Sizes prompts: the model's own tokenizer and chat template, else its engine, else bytes.
//!
//! What is here is work for a processor or a disk; `describe.rs` keeps it off the async workers and
//! asks the engines.

mod files;
mod python;
mod sizes;
mod template;

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use sizes::Tokenizers;

use crate::domain::Now;
use files::ModelFiles;

/// How one model's prompts are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerConfig {
    /// A folder with `tokenizer.json`, `tokenizer_config.json` and perhaps `chat_template.jinja`.
    pub files: Option<PathBuf>,
    /// Ask the engine's `/tokenize` where there are no files.
    pub engine: bool,
}

impl TokenizerConfig {
    /// Reads the files once and lets them go, to find out whether they can be used.
    ///
    /// # Errors
    /// [`TokenizeError`] naming the file.
    pub fn check(&self, clock: &Arc<dyn Now>) -> Result<(), TokenizeError> {
        self.files.as_deref().map_or(Ok(()), |folder| ModelFiles::load(folder, Arc::clone(clock)).map(drop))
    }
}

/// Why a model's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizeError {
    /// A file cannot be read.
    #[error("cannot read {path}; `tokenizer.files` names a folder with tokenizer.json", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file has content that cannot be used.
    #[error("{path} cannot be used: {reason}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The chat template does not compile.
    #[error("the chat template in {path} does not compile", path = path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<minijinja::Error>,
    },
}

#[cfg(test)]
mod tests;
