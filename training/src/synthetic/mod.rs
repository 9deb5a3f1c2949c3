//! Synthetic evaluations: prompts of the four tasks, scores around the paper's Table 2, lengths as specified.
//!
//! They exist so that a newcomer sees the whole path work. A bundle trained on them says so in its manifest.

mod evaluations;
mod prompts;
mod prose;
mod tasks;
mod words;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

pub use evaluations::{Synthesis, synthesize};
pub use tasks::{MODELS, TASKS};

use prompts::Wish;
use prose::Writer;
use words::Lexicon;

/// Facts about the generated models, in the form of a models file.
pub const MODEL_FACTS: &str = include_str!("../../recipes/qwen3-models.json");

/// Writes the texts that the feature tokenizer is trained on: `texts` prompts of every task and topic in equal
/// parts, then half as many runs of everyday words, so that real prompts are cut well too.
#[must_use]
pub fn tokenizer_corpus(seed: u64, texts: usize) -> Vec<String> {
    let lexicon = Lexicon::load();
    // No tokenizer is there yet: four characters stand for a token.
    let count = |text: &str| text.len().div_ceil(4);
    let stream = |i: usize| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(i as u64);
        rng
    };
    let prompt = |i: usize| {
        let topic = &lexicon.topics[i % lexicon.topics.len()];
        let task = &TASKS[i / lexicon.topics.len() % TASKS.len()];
        let mut writer = Writer::new(&lexicon, topic, stream(i));
        let length_pull = writer.rng().random_range(-2.0..2.0);
        let wish = Wish { kind: task.kind, tokens: 400.0, length_pull, answer_tokens: task.output.mu.exp() };
        prompts::write(&wish, &mut writer, &count)
    };
    let common = words::common_words();
    let everyday = |i: usize| everyday_line(&common, &mut stream(i));
    (0..texts).map(prompt).chain((texts..texts + texts / 2).map(everyday)).collect()
}

/// Writes some everyday words, one in eight capitalised, with a mark here and there.
fn everyday_line(common: &[&str], rng: &mut impl Rng) -> String {
    const MARKS: [&str; 12] = [".", ",", "?", "!", ":", ";", " (", ")", " =", "\n", "\n\n", " -"];
    let mut line = String::new();
    for _ in 0..120 {
        let word = common.choose(rng).copied().unwrap_or_default();
        if rng.random_range(0..8) == 0 {
            line.push_str(&prose::capitalize(word))
        } else {
            line.push_str(word)
        }
        if rng.random_range(0..6) == 0 {
            line.push_str(MARKS.choose(rng).copied().unwrap_or_default());
        }
        line.push(' ');
    }
    line
}
