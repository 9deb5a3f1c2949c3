//! Features of prompts that have no text: what predictors see of a simulated request.
//!
//! Each kind of prompt has a vocabulary of its own: tokens fall into hash buckets with fixed frequencies and
//! signs, as real tokens do. A part of the tokens belongs to a topic that says nothing, and a part is drawn from
//! hard or easy words according to the prompt's visible difficulty, so a short prompt shows it dimly and a long
//! one clearly. Words of length and cues do the same for the answer's length.

use std::sync::Arc;

use rand::{Rng, RngCore, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;

use super::nature::{Nature, normal};
use crate::predict::{Cue, FeatureParts, QueryFeatures, features::HASH_BUCKETS};

/// Seed of every vocabulary. The bundles in `models/lab` are trained on these: another seed, other bundles.
const VOCABULARY_SEED: u64 = 0x6265_6172;
/// Entries of a vocabulary's table; a frequency is a share of them.
const ENTRIES: usize = 1024;
/// Most tokens drawn of one prompt; the counts of a longer one are scaled up.
const MOST_DRAWN: usize = 256;
/// Topics.
const TOPICS: u64 = 12;
/// Of 2^16 tokens, those from the kind's own vocabulary, from words common to all, and from the topic; the rest
/// are level words and, up to the end, length words.
const SHARES: [u16; 4] = [32_768, 42_598, 49_152, 60_948];
/// Buckets of the kind's, the common, a topic's, and a level's vocabulary, and how flat each is (rank + this
/// is inverse to a word's frequency).
const KIND_WORDS: (usize, f64) = (160, 8.0);
const COMMON_WORDS: (usize, f64) = (300, 10.0);
const TOPIC_WORDS: (usize, f64) = (40, 4.0);
const LEVEL_WORDS: (usize, f64) = (8, 8.0);
/// Words of a token of an answer.
const WORDS_PER_TOKEN: f64 = 0.75;

/// A kind of prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Its name: kinds of one name share their vocabulary.
    pub(super) name: &'static str,
    /// Cues and how often its prompts show them.
    pub(super) cues: &'static [(Cue, f64)],
    /// How often its prompts ask for a counted number of words.
    pub(super) counted: f64,
    /// Mean characters a token.
    pub(super) characters_per_token: f64,
    /// Mean tokens a sentence.
    pub(super) tokens_per_sentence: f64,
}

/// Draws features of one kind of prompt.
#[derive(Clone)]
pub(super) struct Sketcher {
    kind: Kind,
    version: Arc<str>,
    own: Vocabulary,
    shared: Arc<Shared>,
}

/// What prompts of every kind are written in.
pub(super) struct Shared {
    common: Vocabulary,
    topics: Vec<Vocabulary>,
    /// Easy and hard words.
    levels: [Vocabulary; 2],
    /// Words that ask for short and for long answers.
    lengths: [Vocabulary; 2],
}

impl Shared {
    /// Makes the vocabularies.
    pub(super) fn new() -> Arc<Self> {
        let vocabulary = |name: &str, words| Vocabulary::new(name, words);
        Arc::new(Self {
            common: vocabulary("common", COMMON_WORDS),
            topics: (0..TOPICS).map(|topic| vocabulary(&format!("topic {topic}"), TOPIC_WORDS)).collect(),
            levels: ["easy", "hard"].map(|name| vocabulary(name, LEVEL_WORDS)),
            lengths: ["short", "long"].map(|name| vocabulary(name, LEVEL_WORDS)),
        })
    }
}

impl Sketcher {
    /// Makes the sketcher of a kind, whose features carry `version`.
    pub(super) fn new(kind: Kind, version: &str, shared: &Arc<Shared>) -> Self {
        let own = Vocabulary::new(kind.name, KIND_WORDS);
        Self { kind, version: version.into(), own, shared: Arc::clone(shared) }
    }

    /// Draws the features of a prompt of this nature; `visible_tokens` is the answer's length as it shows.
    ///
    /// The feature tokenizer is taken to cut it into as many tokens as the models do.
    pub(super) fn draw(
        &self,
        prompt_tokens: u32,
        nature: &Nature,
        visible_tokens: f64,
        rng: &mut dyn RngCore,
    ) -> Option<Arc<QueryFeatures>> {
        let tokens = f64::from(prompt_tokens);
        // Harder prompts have longer words; over a short prompt chance adds more.
        let characters_per_token = self.kind.characters_per_token
            + 0.15 * nature.difficulty
            + (0.1 + 1.2 / tokens.sqrt()) * normal(rng);
        let characters = tokens * characters_per_token.max(1.0);
        let sentences =
            (tokens / self.kind.tokens_per_sentence * (0.15 * normal(rng)).exp()).round().max(1.0);
        let (cues, asked_words) = self.cues(nature, visible_tokens, rng);
        let parts = FeatureParts {
            version: &self.version,
            tokens: prompt_tokens,
            characters: characters as u32,
            sentences: sentences as u32,
            asked_words,
            cues: &cues,
            counts: self.counts(prompt_tokens, nature, rng),
        };
        // The counts keep the rules by construction; features that broke one would be none.
        QueryFeatures::try_from(parts).ok().map(Arc::new)
    }

    fn cues(&self, nature: &Nature, visible_tokens: f64, rng: &mut dyn RngCore) -> (Vec<Cue>, Option<u32>) {
        let mut cues = Vec::with_capacity(6);
        cues.extend(self.kind.cues.iter().filter(|(_, share)| rng.random_bool(*share)).map(|(cue, _)| *cue));
        let asks_more = nature.length + 0.5 * normal(rng);
        match asks_more {
            more if more > 0.8 => cues.push(Cue::LengthLong),
            more if more < -0.8 => cues.push(Cue::LengthBrief),
            _ => {}
        }
        if !rng.random_bool(self.kind.counted) {
            return (cues, None);
        }
        cues.push(Cue::LengthCounted);
        let words = visible_tokens * WORDS_PER_TOKEN * (0.15 * normal(rng)).exp();
        (cues, Some((words / 10.0).round().max(1.0) as u32 * 10))
    }

    fn counts(&self, prompt_tokens: u32, nature: &Nature, rng: &mut dyn RngCore) -> Vec<(u16, i32)> {
        let drawn = MOST_DRAWN.min(prompt_tokens as usize);
        let topic = &self.shared.topics[rng.random_range(0..self.shared.topics.len())];
        let hard = within_16_bits(1.5 * nature.difficulty);
        let long = within_16_bits(1.5 * nature.length);
        let mut bytes = [0_u8; 6 * MOST_DRAWN];
        rng.fill_bytes(&mut bytes[..6 * drawn]);
        let mut dense = [0_i32; HASH_BUCKETS];
        let (draws, _) = bytes[..6 * drawn].as_chunks::<6>();
        for [a, b, c, d, e, f] in draws.iter().copied() {
            let which = u16::from_le_bytes([a, b]);
            let side = u16::from_le_bytes([e, f]);
            let vocabulary = match SHARES.iter().position(|share| which < *share) {
                Some(0) => &self.own,
                Some(1) => &self.shared.common,
                Some(2) => topic,
                Some(_) => &self.shared.levels[usize::from(side < hard)],
                None => &self.shared.lengths[usize::from(side < long)],
            };
            vocabulary.count(u16::from_le_bytes([c, d]), &mut dense);
        }
        // Cut towards zero, so that the sizes never add up to more than the tokens.
        let scale = f64::from(prompt_tokens) / drawn.max(1) as f64;
        let scaled = |count: i32| (f64::from(count) * scale) as i32;
        (0..)
            .zip(dense)
            .filter(|(_, count)| *count != 0)
            .map(|(bucket, count)| (bucket, scaled(count)))
            .collect()
    }
}

/// The share of the logistic function in 2^16.
fn within_16_bits(log_odds: f64) -> u16 {
    (f64::from(u16::MAX) / (1.0 + (-log_odds).exp())) as u16
}

/// Words by frequency: a table of buckets with signs, each as often as its words come.
#[derive(Clone)]
struct Vocabulary {
    entries: Box<[(u16, i8)]>,
}

impl Vocabulary {
    fn new(name: &str, (words, flatness): (usize, f64)) -> Self {
        let seed = name
            .bytes()
            .fold(VOCABULARY_SEED, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let buckets = index::sample(&mut rng, HASH_BUCKETS, words);
        let weight = |rank: usize| 1.0 / (rank as f64 + flatness);
        let total: f64 = (0..words).map(weight).sum();
        let mut entries = Vec::with_capacity(ENTRIES);
        let mut sum = 0.0;
        for (rank, bucket) in buckets.into_iter().enumerate() {
            sum += weight(rank) / total;
            let sign = if rng.random_bool(0.5) { 1 } else { -1 };
            entries.resize((sum * ENTRIES as f64).round() as usize, (bucket as u16, sign));
        }
        // Rounding may leave the last entry out.
        let last = entries.last().copied().unwrap_or((0, 1));
        entries.resize(ENTRIES, last);
        Self { entries: entries.into_boxed_slice() }
    }

    fn count(&self, random: u16, dense: &mut [i32; HASH_BUCKETS]) {
        let (bucket, sign) = self.entries[usize::from(random) % ENTRIES];
        dense[usize::from(bucket)] += i32::from(sign);
    }
}
