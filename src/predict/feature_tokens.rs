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
    /// Returns the ids of `text`, special tokens not added; none where the tokenizer fails on it.
    fn token_ids(&self, text: &str) -> Option<Vec<u32>>;
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
    /// Says what the reader refused, or that the tokenizer fails on some text.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PredictError> {
        let refused = |what: String| PredictError::Tokenizer { what };
        let text = std::str::from_utf8(bytes).map_err(|error| refused(error.to_string()))?;
        let tokenizer = tokenizers::from_json(text).map_err(|error| refused(error.to_string()))?;
        let digest = hex(&Sha256::digest(bytes));
        let version = format!("{FEATURE_VERSION}+{}", digest.get(..8).unwrap_or_default());
        let tokens = Self { tokenizer, options: EncodeOptions::no_specials(), version };
        tokens.encode(&every_byte()).map_err(|error| refused(format!("it fails on plain text: {error}")))?;
        Ok(tokens)
    }

    fn encode(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 4);
        self.tokenizer.encode_into(text, &self.options, &mut tokens)?;
        Ok(tokens.iter().map(|token| token.id()).collect())
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
    fn token_ids(&self, text: &str) -> Option<Vec<u32>> {
        self.encode(text).ok()
    }

    fn version(&self) -> &str {
        &self.version
    }
}

/// Returns a text with every byte that text can hold.
fn every_byte() -> String {
    // Every last byte of a character, then every first byte of longer ones.
    let short = (0_u32..0x100).chain((0x100..0x800).step_by(0x40));
    let long = (0x800..0x1_0000).step_by(0x800).chain((0x1_0000..0x11_0000).step_by(0x1_0000));
    short.chain(long).filter_map(char::from_u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_holds_every_byte_of_text() {
        let text = every_byte();
        let bytes: std::collections::BTreeSet<u8> = text.bytes().collect();
        let possible = (0_u8..=0xbf).chain(0xc2..=0xf4);
        assert!(possible.into_iter().all(|byte| bytes.contains(&byte)), "{bytes:02x?}");
    }

    #[test]
    fn the_built_in_tokenizer_reads_and_covers_any_text() {
        let tokens = BpeTokens::built_in();
        for text in [
            "Summarize the report in 100 words.",
            "これは試験です 🙂",
            "fn main() { println!(\"x\"); }",
            "\u{0}\u{7f}",
        ] {
            assert!(!tokens.token_ids(text).unwrap().is_empty(), "{text:?} gave no tokens");
        }
        assert_eq!(tokens.token_ids(""), Some(Vec::new()));
        assert!(tokens.version().starts_with(FEATURE_VERSION));
    }

    #[test]
    fn common_words_are_few_tokens() {
        let tokens = BpeTokens::built_in();
        let text = "Please write a short summary of the following report about the city council.";
        let ids = tokens.token_ids(text).unwrap();
        assert!(ids.len() <= 20, "{} tokens for 13 words", ids.len());
        assert_eq!(Some(ids), tokens.token_ids(text));
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_the_file() {
        let cut = &BpeTokens::built_in_bytes()[..1000];
        let error = BpeTokens::from_bytes(cut).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("feature_tokenizer.json"), "{error}");
        assert!(BpeTokens::from_bytes(&[0xff, 0xfe]).is_err());
    }
}
