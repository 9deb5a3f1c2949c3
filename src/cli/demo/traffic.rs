//! When the demo's requests come and what they ask: a seeded Poisson stream whose rate rises and falls, of
//! four tasks, each request with a target for its first token.

use rand::{Rng, SeedableRng, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};

use super::prompts;
use crate::truth::lengths::{LogNormal, Task};

/// One task of the traffic.
struct DemoTask {
    task: Task,
    /// Its name in `metadata.task`.
    name: &'static str,
    /// Prompt lengths, tokens.
    prompt_tokens: LogNormal,
    /// Its part of all requests.
    share: f64,
}

/// The four tasks. Most of the load is prefill, which is what delays first tokens: an idle larger model
/// answers nearly all in time, and at the top of the load it does not.
const TASKS: [DemoTask; 4] = [
    DemoTask {
        task: Task::InstructionFollowing,
        name: "instruction-following",
        prompt_tokens: LogNormal { mu: 3.9, sigma: 0.6 },
        share: 0.2,
    },
    DemoTask {
        task: Task::QuestionAnswering,
        name: "question-answering",
        prompt_tokens: LogNormal { mu: 7.9, sigma: 0.25 },
        share: 0.6,
    },
    DemoTask {
        task: Task::Summarisation,
        name: "summarisation",
        prompt_tokens: LogNormal { mu: 8.2, sigma: 0.3 },
        share: 0.1,
    },
    DemoTask {
        task: Task::CreativeWriting,
        name: "creative-writing",
        prompt_tokens: LogNormal { mu: 3.9, sigma: 0.3 },
        share: 0.1,
    },
];
/// Shortest and longest prompt, tokens.
const PROMPT_CLIP: (f64, f64) = (8.0, 30_000.0);
/// One rise and fall of the load, seconds.
const PERIOD_S: f64 = 60.0;
/// How far the rate swings to either side of its mean: at the top the larger models are full.
const SWING: f64 = 0.75;
/// Share of requests with a target that only an idle or small instance can meet.
const TIGHT_SHARE: f64 = 0.1;
/// Tight target, milliseconds.
const TIGHT_TARGET_MS: f64 = 60.0;

/// One request of the demo.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ask {
    /// When it is sent, seconds after the start.
    pub(super) at_s: f64,
    /// The value of `metadata.task`.
    pub(super) task: &'static str,
    /// The prompt.
    pub(super) prompt: String,
    /// Longest wished time to the first token, milliseconds.
    pub(super) ttft_target_ms: f64,
}

/// An endless seeded stream of requests.
pub(super) struct Traffic {
    rng: ChaCha8Rng,
    mean_qps: f64,
    at_s: f64,
}

impl Traffic {
    /// Starts a stream with a mean rate, requests a second.
    pub(super) fn new(mean_qps: f64, seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), mean_qps, at_s: 0.0 }
    }

    /// Returns the rate at a time, requests a second: it starts at its mean, rises, falls and comes back.
    pub(super) fn rate_at(&self, at_s: f64) -> f64 {
        self.mean_qps * (1.0 + SWING * (std::f64::consts::TAU * at_s / PERIOD_S).sin())
    }

    /// Moves on to the next arrival: a Poisson stream of the highest rate, thinned to the present one.
    fn next_arrival_s(&mut self) -> f64 {
        let highest = self.mean_qps * (1.0 + SWING);
        loop {
            let gap: f64 = Exp1.sample(&mut self.rng);
            self.at_s += gap / highest;
            if self.rng.random::<f64>() * highest < self.rate_at(self.at_s) {
                return self.at_s;
            }
        }
    }
}

impl Iterator for Traffic {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        let at_s = self.next_arrival_s();
        let rng = &mut self.rng;
        let kind = TASKS.choose_weighted(rng, |kind| kind.share).unwrap_or(&TASKS[0]);
        let tokens = kind.prompt_tokens.draw(rng).clamp(PROMPT_CLIP.0, PROMPT_CLIP.1);
        let prompt = prompts::write(kind.task, tokens as usize, rng);
        let ttft_target_ms =
            if rng.random_bool(TIGHT_SHARE) { TIGHT_TARGET_MS } else { paper_target_ms(tokens, rng) };
        Some(Ask { at_s, task: kind.name, prompt, ttft_target_ms })
    }
}

/// Draws a target as the paper does (A.2), whole milliseconds:
/// `min(1120, max(150, u + (155 + 0.0035·p)·v))`, u in [1, 5], v in [0.98, 1.02], p prompt tokens.
fn paper_target_ms(prompt_tokens: f64, rng: &mut impl Rng) -> f64 {
    let (u, v) = (rng.random_range(1.0..5.0), rng.random_range(0.98..1.02));
    (u + (155.0 + 3.5e-3 * prompt_tokens) * v).clamp(150.0, 1120.0).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_seeded_ordered_and_has_its_mean_rate() {
        let asks: Vec<Ask> = Traffic::new(8.0, 3).take(960).collect();
        assert_eq!(asks[..50], Traffic::new(8.0, 3).take(50).collect::<Vec<_>>());
        assert_ne!(asks[0], Traffic::new(8.0, 4).next().unwrap());
        assert!(asks.is_sorted_by(|a, b| a.at_s < b.at_s));
        // Two whole periods hold 960 requests on average, with a standard deviation of 31.
        let end_s = asks.last().unwrap().at_s;
        assert!((100.0..140.0).contains(&end_s), "{end_s}");
        for kind in TASKS {
            let share = asks.iter().filter(|a| a.task == kind.name).count() as f64 / 960.0;
            assert!((share - kind.share).abs() < 0.06, "{}: {share}", kind.name);
        }
    }

    #[test]
    fn the_rate_rises_and_falls() {
        let traffic = Traffic::new(10.0, 1);
        assert!((traffic.rate_at(15.0) - 17.5).abs() < 1e-9);
        assert!((traffic.rate_at(45.0) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn targets_are_the_papers_or_tight() {
        let asks: Vec<Ask> = Traffic::new(8.0, 5).take(400).collect();
        let tight = asks.iter().filter(|a| a.ttft_target_ms == TIGHT_TARGET_MS).count();
        assert!((20..65).contains(&tight), "{tight}");
        let others = asks.iter().filter(|a| a.ttft_target_ms != TIGHT_TARGET_MS);
        assert!(others.into_iter().all(|a| (150.0..300.0).contains(&a.ttft_target_ms)));
    }
}
