//! The feature tokenizer: the project's own byte-level BPE, the same for every model's features.
//!
//! A bundle carries its own copy as bytes; the prior uses the one built in.

use sha2::{Digest, Sha256};
use tokenizers::pipeline::{EncodeOptions, PipelineTokenizer};

use super::{PredictError, digest::hex, shape::FEATURE_VERSION};

/// The tokenizer `bear-train tokenizer` makes, as shipped in `models/`.
const BUILT_IN: &[u8] = include_bytes!("../../models/feature_tokenizer.json");

/// Turns text into the token ids that features are hashed from.
pub trait FeatureTokens: Send + Sync {
    /// Returns the ids of `text`, special tokens not added.
    fn token_ids(&self, text: &str) -> Vec<u32>;
    /// Returns the version of the features these tokens give: the feature function's and the vocabulary's.
    fn version(&self) -> &str;
}

/// A byte-level BPE read from a canonical `tokenizer.json`.
pub struct BpeTokens {
    tokenizer: PipelineTokenizer,
    options: EncodeOptions,
    version: String,
}

impl BpeTokens {
    /// Reads a tokenizer file's bytes.
    ///
    /// # Errors
    /// Says what the reader refused.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PredictError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| PredictError::Tokenizer { what: error.to_string() })?;
        let tokenizer = tokenizers::from_json(text)
            .map_err(|error| PredictError::Tokenizer { what: error.to_string() })?;
        let digest = hex(&Sha256::digest(bytes));
        let version = format!("{FEATURE_VERSION}+{}", digest.get(..8).unwrap_or_default());
        Ok(Self { tokenizer, options: EncodeOptions::no_specials(), version })
    }

    /// Returns the built-in file's bytes.
    #[must_use]
    pub const fn built_in_bytes() -> &'static [u8] {
        BUILT_IN
    }

    /// Reads the built-in file.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the bytes are a constant of the binary and a test reads them")]
    pub fn built_in() -> Self {
        Self::from_bytes(BUILT_IN).expect("the built-in feature tokenizer reads")
    }
}

impl FeatureTokens for BpeTokens {
    fn token_ids(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 4);
        // Encoding plain text with a byte-level vocabulary has no failing input; were there one, the
        // tokens found so far describe the prompt.
        let _ = self.tokenizer.encode_into(text, &self.options, &mut tokens);
        tokens.iter().map(|token| token.id()).collect()
    }

    fn version(&self) -> &str {
        &self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_tokenizer_reads_and_covers_any_text() {
        let tokens = BpeTokens::built_in();
        for text in [
            "Summarize the report in 100 words.",
            "これは試験です 🙂",
            "fn main() { println!(\"x\"); }",
            "\u{0}\u{7f}",
        ] {
            assert!(!tokens.token_ids(text).is_empty(), "{text:?} gave no tokens");
        }
        assert!(tokens.token_ids("").is_empty());
        assert!(tokens.version().starts_with(FEATURE_VERSION));
    }

    #[test]
    fn common_words_are_few_tokens() {
        let tokens = BpeTokens::built_in();
        let text = "Please write a short summary of the following report about the city council.";
        let ids = tokens.token_ids(text);
        assert!(ids.len() <= 20, "{} tokens for 13 words", ids.len());
        assert_eq!(ids, tokens.token_ids(text));
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_the_file() {
        let cut = &BpeTokens::built_in_bytes()[..1000];
        let error = BpeTokens::from_bytes(cut).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("feature_tokenizer.json"), "{error}");
        assert!(BpeTokens::from_bytes(&[0xff, 0xfe]).is_err());
    }
}
