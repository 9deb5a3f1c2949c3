//! The one feature function: the same numbers for training and for serving (paper A.4).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::shape::{COMPONENTS, FEATURE_VERSION, HASH_BUCKETS};
use super::{
    PredictError,
    cues::{self, Cue, Cues},
    feature_tokens::FeatureTokens,
    pca::Pca,
};

/// Scalars that stand between the components and the cues.
const SCALARS: [&str; 5] = ["tokens", "characters", "sentences", "characters_per_token", "asked_words"];
/// The version of features without tokens, which no bundle has.
pub const UNTOKENIZED: &str = "untokenized";
/// Features of a prompt alone.
pub const PROMPT_FEATURES: usize = COMPONENTS + SCALARS.len() + Cue::ALL.len();
/// Features of a prompt and a model, for accuracy: those of the prompt, then model, parameters, context.
pub const ACCURACY_FEATURES: usize = PROMPT_FEATURES + 3;
/// Features of a prompt and a model, for output length: those of the prompt, then model.
pub const OUTPUT_LENGTH_FEATURES: usize = PROMPT_FEATURES + 1;
/// Position of the categorical model id in both vectors.
pub const MODEL_FEATURE: usize = PROMPT_FEATURES;

/// What the router keeps of a prompt: sparse token counts and named scalars, no text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawFeatures")]
pub struct QueryFeatures {
    version: String,
    tokens: u32,
    characters: u32,
    sentences: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_words: Option<u32>,
    cues: Cues,
    counts: Vec<(u16, i32)>,
}

/// The JSON form before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFeatures {
    version: String,
    tokens: u32,
    characters: u32,
    sentences: u32,
    #[serde(default)]
    asked_words: Option<u32>,
    cues: Cues,
    counts: Vec<(u16, i32)>,
}

impl TryFrom<RawFeatures> for QueryFeatures {
    type Error = PredictError;

    fn try_from(raw: RawFeatures) -> Result<Self, PredictError> {
        let refuse = |what| Err(PredictError::Features { what });
        if let Some((bucket, _)) = raw.counts.iter().find(|(bucket, _)| usize::from(*bucket) >= HASH_BUCKETS)
        {
            return refuse(format!("`counts` has bucket {bucket}, the last is {}", HASH_BUCKETS - 1));
        }
        if !raw.counts.is_sorted_by(|a, b| a.0 < b.0) {
            return refuse(String::from("`counts` is not in ascending order of distinct buckets"));
        }
        let total: u64 = raw.counts.iter().map(|(_, count)| u64::from(count.unsigned_abs())).sum();
        if total > u64::from(raw.tokens) {
            return refuse(format!("`counts` adds up to {total}, over `tokens` = {}", raw.tokens));
        }
        let RawFeatures { version, tokens, characters, sentences, asked_words, cues, counts } = raw;
        Ok(Self { version, tokens, characters, sentences, asked_words, cues, counts })
    }
}

/// Features by their parts, for a prompt whose text is not there (a simulated one).
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureParts<'a> {
    /// The version: feature function and tokenizer.
    pub version: &'a str,
    /// Tokens under the feature tokenizer.
    pub tokens: u32,
    /// Characters.
    pub characters: u32,
    /// Sentences.
    pub sentences: u32,
    /// Words that the prompt asks for; absent: none.
    pub asked_words: Option<u32>,
    /// The cues it shows.
    pub cues: &'a [Cue],
    /// Signed counts that are not zero, by ascending bucket; their sizes add up to at most `tokens`.
    pub counts: Vec<(u16, i32)>,
}

impl TryFrom<FeatureParts<'_>> for QueryFeatures {
    type Error = PredictError;

    fn try_from(parts: FeatureParts<'_>) -> Result<Self, PredictError> {
        let FeatureParts { version, tokens, characters, sentences, asked_words, cues: seen, counts } = parts;
        let mut cues = Cues::default();
        seen.iter().for_each(|cue| cues.insert(*cue));
        let version = version.to_owned();
        RawFeatures { version, tokens, characters, sentences, asked_words, cues, counts }.try_into()
    }
}

impl QueryFeatures {
    /// Returns the version: feature function and tokenizer.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the signed counts that are not zero, by ascending bucket (of [`HASH_BUCKETS`]).
    #[must_use]
    pub fn sparse_counts(&self) -> &[(u16, i32)] {
        &self.counts
    }

    /// Returns the prompt's tokens under the feature tokenizer (not any model's own).
    #[must_use]
    pub const fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Returns whether the prompt shows `cue`.
    #[must_use]
    pub const fn has(&self, cue: Cue) -> bool {
        self.cues.has(cue)
    }

    /// Returns the prompt's part of the feature vector, in the order of [`prompt_feature_names`].
    #[must_use]
    pub fn prompt_vector(&self, pca: &Pca) -> [f64; PROMPT_FEATURES] {
        let mut vector = [0.0; PROMPT_FEATURES];
        let (components, rest) = vector.split_at_mut(COMPONENTS);
        components.copy_from_slice(&pca.project(&self.counts, self.tokens));
        let (scalars, indicators) = rest.split_at_mut(SCALARS.len());
        scalars.copy_from_slice(&self.scalars());
        for (indicator, cue) in indicators.iter_mut().zip(Cue::ALL) {
            *indicator = f64::from(u8::from(self.cues.has(*cue)));
        }
        vector
    }

    fn scalars(&self) -> [f64; SCALARS.len()] {
        [
            f64::from(self.tokens),
            f64::from(self.characters),
            f64::from(self.sentences),
            f64::from(self.characters) / f64::from(self.tokens.max(1)),
            f64::from(self.asked_words.unwrap_or(0)),
        ]
    }

    /// Returns scalars and cues by name, for people to read.
    #[must_use]
    pub fn named(&self) -> BTreeMap<&'static str, f64> {
        let indicators = Cue::ALL.iter().map(|cue| (cue.name(), f64::from(u8::from(self.cues.has(*cue)))));
        SCALARS.into_iter().zip(self.scalars()).chain(indicators).collect()
    }
}

/// Describes a prompt: its hashed token counts, sizes and cues.
///
/// Where the tokenizer fails, the version is [`UNTOKENIZED`]: no bundle predicts from such features (models get
/// their priors) and none is trained on them.
#[must_use]
pub fn describe(prompt: &str, tokens: &dyn FeatureTokens) -> QueryFeatures {
    let ids = tokens.token_ids(prompt);
    let version = if ids.is_some() { tokens.version() } else { UNTOKENIZED };
    let ids = ids.unwrap_or_default();
    let scan = cues::scan(prompt);
    QueryFeatures {
        version: version.to_owned(),
        tokens: saturate(ids.len()),
        characters: saturate(prompt.chars().count()),
        sentences: count_sentences(prompt),
        asked_words: scan.asked_words,
        cues: scan.cues,
        counts: hash_counts(&ids),
    }
}

/// Returns the accuracy model's row. `parameters_b` is in billions, `max_model_len_tokens` in tokens.
#[must_use]
pub fn accuracy_row(
    prompt: &[f64; PROMPT_FEATURES],
    category: u32,
    parameters_b: f64,
    max_model_len_tokens: u32,
) -> [f64; ACCURACY_FEATURES] {
    let mut row = [0.0; ACCURACY_FEATURES];
    row[..PROMPT_FEATURES].copy_from_slice(prompt);
    row[MODEL_FEATURE] = f64::from(category);
    row[MODEL_FEATURE + 1] = (parameters_b * 1e9).ln();
    row[MODEL_FEATURE + 2] = f64::from(max_model_len_tokens);
    row
}

/// Returns the output-length model's row.
#[must_use]
pub fn output_length_row(prompt: &[f64; PROMPT_FEATURES], category: u32) -> [f64; OUTPUT_LENGTH_FEATURES] {
    let mut row = [0.0; OUTPUT_LENGTH_FEATURES];
    row[..PROMPT_FEATURES].copy_from_slice(prompt);
    row[MODEL_FEATURE] = f64::from(category);
    row
}

/// Returns the names of the prompt's features, in vector order.
#[must_use]
pub fn prompt_feature_names() -> Vec<String> {
    let components = (0..COMPONENTS).map(|k| format!("pca_{k}"));
    let scalars = SCALARS.iter().map(|name| (*name).to_owned());
    components.chain(scalars).chain(Cue::ALL.iter().map(|cue| cue.name().to_owned())).collect()
}

/// Returns the names of the accuracy model's features, in row order.
#[must_use]
pub fn accuracy_feature_names() -> Vec<String> {
    let model = ["model", "log_parameters", "max_model_len_tokens"].map(str::to_owned);
    prompt_feature_names().into_iter().chain(model).collect()
}

/// Returns the names of the output-length model's features, in row order.
#[must_use]
pub fn output_length_feature_names() -> Vec<String> {
    prompt_feature_names().into_iter().chain([String::from("model")]).collect()
}

fn saturate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Signed feature hashing: each token adds +1 or −1 to one bucket; returns the non-zero sums.
fn hash_counts(ids: &[u32]) -> Vec<(u16, i32)> {
    let mut dense = [0_i32; HASH_BUCKETS];
    for id in ids {
        let hash = mix(u64::from(*id));
        let sign = if hash >> 63 == 0 { 1 } else { -1 };
        if let Some(count) = dense.get_mut(hash as usize % HASH_BUCKETS) {
            *count += sign;
        }
    }
    (0..).zip(dense).filter(|(_, count)| *count != 0).collect()
}

/// Scrambles 64 bits (the SplitMix64 finaliser), so that buckets and signs are even over consecutive ids.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Counts sentences: ends marked by `.`, `!`, `?` or their CJK forms before white space or the end, plus an
/// unmarked rest.
fn count_sentences(prompt: &str) -> u32 {
    let mut sentences = 0_u32;
    let mut open = false;
    let mut marked = false;
    for c in prompt.chars() {
        if matches!(c, '。' | '！' | '？') {
            sentences = sentences.saturating_add(u32::from(open));
            (open, marked) = (false, false);
        } else if matches!(c, '.' | '!' | '?') {
            marked = true;
        } else if c.is_whitespace() {
            if marked && open {
                sentences = sentences.saturating_add(1);
                open = false;
            }
            marked = false;
        } else if c.is_alphanumeric() {
            (open, marked) = (true, false);
        }
    }
    sentences.saturating_add(u32::from(open))
}

#[cfg(test)]
mod tests;
