//! What answers of one model have turned out to be long: the length expected of strangers.

use std::sync::{Mutex, PoisonError};

/// Answers that the running means remember, about: older ones fade.
const MEMORY: f64 = 200.0;

/// Answers of one prompt size needed before their own mean is used.
const ENOUGH: f64 = 20.0;

/// Prompt sizes by powers of two, tokens.
const BUCKETS: usize = 32;

/// Running means of output tokens, over all answers and by prompt size.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    means: Mutex<Means>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: f64,
    tokens: f64,
}

#[derive(Debug, Default)]
struct Means {
    all: Mean,
    by_prompt: [Mean; BUCKETS],
}

impl Mean {
    fn add(&mut self, tokens: f64) {
        self.count = (self.count + 1.0).min(MEMORY);
        self.tokens += (tokens - self.tokens) / self.count;
    }
}

impl Lengths {
    /// Learns from a complete answer.
    pub(super) fn observe(&self, prompt_tokens: u32, output_tokens: u32) {
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        means.all.add(f64::from(output_tokens));
        means.by_prompt[bucket(prompt_tokens)].add(f64::from(output_tokens));
    }

    /// Returns the mean output tokens of answers to prompts of that size, of all answers where those
    /// are too few; absent until enough answers were seen.
    pub(super) fn mean(&self, prompt_tokens: u32) -> Option<f64> {
        let means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        [means.by_prompt[bucket(prompt_tokens)], means.all]
            .into_iter()
            .find(|mean| mean.count >= ENOUGH)
            .map(|mean| mean.tokens)
    }
}

fn bucket(prompt_tokens: u32) -> usize {
    prompt_tokens.max(1).ilog2() as usize
}
