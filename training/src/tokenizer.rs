//! Trains the feature tokenizer: a byte-level BPE over the project's own generated text.

use std::collections::HashSet;

use serde_json::json;
use thiserror::Error;
use tokenizers::{Trainer, pre_tokenizers::byte_level::ByteLevel, trainers::BpeTrainer};

/// Entries of the vocabulary, the 256 bytes included.
pub const VOCABULARY: usize = 6_144;
/// A merge must be seen this often.
const MIN_FREQUENCY: u64 = 3;

/// Why no tokenizer came out.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// The trainer or the writer failed.
    #[error("the tokenizer could not be trained: {what}")]
    Train {
        /// What it said.
        what: String,
    },
}

/// Trains on `texts` and returns the canonical `tokenizer.json`, the same bytes for the same texts.
///
/// # Errors
/// Passes on what the trainer or the writer said.
pub fn train(texts: impl IntoIterator<Item = String>) -> Result<String, TokenizerError> {
    let error = |error: &dyn std::fmt::Display| TokenizerError::Train { what: error.to_string() };
    let mut trainer = BpeTrainer::builder()
        .vocab_size(VOCABULARY)
        .min_frequency(MIN_FREQUENCY)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect::<HashSet<char>>())
        .build();
    let texts: Vec<String> = texts.into_iter().collect();
    trainer.feed(texts.iter(), |text| Ok(byte_level_words(text))).map_err(|e| error(&e))?;
    let (vocabulary, merges, _) = trainer.train_vocab().map_err(|e| error(&e))?;
    let mut entries: Vec<(String, u32)> = vocabulary.into_iter().collect();
    entries.sort_by_key(|(_, id)| *id);
    let vocabulary: serde_json::Map<_, _> =
        entries.into_iter().map(|(token, id)| (token, json!(id))).collect();
    let merges: Vec<_> = merges.into_iter().map(|(left, right)| json!([left, right])).collect();
    let classic = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges},
    });
    let canonical = tokenizers::canonicalize_str(&classic.to_string()).map_err(|e| error(&e))?;
    // One line: the pretty form is twice as long.
    let compact: serde_json::Value = serde_json::from_str(&canonical).map_err(|e| error(&e))?;
    Ok(format!("{compact}\n"))
}

/// Cuts a text as the pre-tokenizer does (a word with the space before it, a run of digits, of marks, of white
/// space) and spells each piece in the byte alphabet.
fn byte_level_words(text: &str) -> Vec<String> {
    let alphabet = ByteLevel::alphabet();
    let spell = |piece: &str| piece.bytes().map(|byte| alphabet[usize::from(byte)]).collect::<String>();
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let body = if first == ' ' { &rest[1..] } else { rest };
        let class = body.chars().next().map_or(Class::Space, classify);
        let mut end = rest.len() - body.len();
        if class == Class::Space {
            // White space before a word keeps its last blank for the word.
            end = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
            if end > 1 && end < rest.len() && rest[..end].ends_with(' ') {
                end -= 1;
            }
        } else {
            end += body.find(|c| classify(c) != class).unwrap_or(body.len());
        }
        words.push(spell(&rest[..end]));
        rest = &rest[end..];
    }
    words
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Digit,
    Mark,
}

fn classify(c: char) -> Class {
    if c.is_whitespace() {
        Class::Space
    } else if c.is_alphabetic() {
        Class::Letter
    } else if c.is_numeric() {
        Class::Digit
    } else {
        Class::Mark
    }
}
