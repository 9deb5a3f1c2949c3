//! How long a simulated answer is: drawn by task and model, seeded by the order of arrival.

use std::collections::BTreeMap;

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// What a request asks for, as far as its answer's length depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A short instruction.
    InstructionFollowing,
    /// A question over several documents.
    QuestionAnswering,
    /// A summary of a long report.
    Summarisation,
    /// A story from a short prompt.
    CreativeWriting,
}

/// Every task and the names that `metadata.task` may use for it; the first is the canonical one, the last
/// the public data set that stands for it.
pub const TASK_NAMES: &[(Task, &[&str])] = &[
    (Task::InstructionFollowing, &["instruction-following", "instruction", "alpaca"]),
    (Task::QuestionAnswering, &["question-answering", "qa", "hotpotqa"]),
    (Task::Summarisation, &["summarisation", "summarization", "govreport"]),
    (Task::CreativeWriting, &["creative-writing", "creative", "writingprompts"]),
];

impl Task {
    /// Returns the task a name means, whatever its case and with `_` or a blank for `-`; none for a name
    /// it does not know.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_lowercase().replace(['_', ' '], "-");
        TASK_NAMES.iter().find(|(_, names)| names.contains(&name.as_str())).map(|(task, _)| *task)
    }
}

/// A lognormal by the mean and standard deviation of its logarithm (of tokens).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogNormal {
    /// Mean of the logarithm.
    pub mu: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

impl LogNormal {
    /// Draws one value.
    pub fn draw(&self, rng: &mut impl Rng) -> f64 {
        let z: f64 = StandardNormal.sample(rng);
        (self.mu + self.sigma * z).exp()
    }
}

/// The answer lengths of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputLengths {
    /// The model's factor on every length.
    pub factor: f64,
    /// Shortest and longest answer, tokens.
    pub clip: [u32; 2],
    /// The lengths of each task, tokens.
    pub tasks: BTreeMap<Task, LogNormal>,
    /// Prompt tokens from which an unnamed task is question answering; below, it follows instructions.
    pub question_answering_from_tokens: u32,
    /// Prompt tokens from which an unnamed task is summarisation.
    pub summarisation_from_tokens: u32,
}

impl OutputLengths {
    /// Returns the named task, else the one a prompt of this length suggests.
    #[must_use]
    pub fn task(&self, name: Option<&str>, prompt_tokens: u32) -> Task {
        name.and_then(Task::from_name).unwrap_or({
            if prompt_tokens < self.question_answering_from_tokens {
                Task::InstructionFollowing
            } else if prompt_tokens < self.summarisation_from_tokens {
                Task::QuestionAnswering
            } else {
                Task::Summarisation
            }
        })
    }

    /// Draws the tokens of one answer, the end-of-sequence token included; a task without a distribution
    /// gets the shortest answer.
    pub fn draw_tokens(&self, task: Task, rng: &mut impl Rng) -> u32 {
        let [least, most] = self.clip;
        let Some(lengths) = self.tasks.get(&task) else { return least };
        let tokens = (lengths.draw(rng) * self.factor).round();
        tokens.clamp(f64::from(least), f64::from(most)) as u32
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn lengths(factor: f64) -> OutputLengths {
        OutputLengths {
            factor,
            clip: [2, 2000],
            tasks: [
                (Task::InstructionFollowing, LogNormal { mu: 5.5, sigma: 0.8 }),
                (Task::Summarisation, LogNormal { mu: 6.3, sigma: 0.25 }),
            ]
            .into(),
            question_answering_from_tokens: 500,
            summarisation_from_tokens: 2800,
        }
    }

    #[test]
    fn a_named_task_wins_over_the_prompt_length() {
        let l = lengths(1.0);
        assert_eq!(l.task(Some("Creative_Writing"), 9000), Task::CreativeWriting);
        assert_eq!(l.task(Some("govreport"), 10), Task::Summarisation);
        assert_eq!(l.task(Some("poetry"), 499), Task::InstructionFollowing);
        assert_eq!(l.task(None, 500), Task::QuestionAnswering);
        assert_eq!(l.task(None, 2799), Task::QuestionAnswering);
        assert_eq!(l.task(None, 2800), Task::Summarisation);
    }

    #[test]
    fn draws_have_the_asked_median_and_stay_within_the_clip() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let l = lengths(1.05);
        let mut draws: Vec<u32> = (0..4001).map(|_| l.draw_tokens(Task::Summarisation, &mut rng)).collect();
        draws.sort_unstable();
        let expected = 6.3f64.exp() * 1.05;
        assert!((f64::from(draws[2000]) / expected - 1.0).abs() < 0.02, "{}", draws[2000]);
        let wide: Vec<u32> = (0..4000).map(|_| l.draw_tokens(Task::InstructionFollowing, &mut rng)).collect();
        assert!(wide.iter().all(|t| (2..=2000).contains(t)));
        assert!(wide.contains(&2000));
        assert_eq!(l.draw_tokens(Task::CreativeWriting, &mut rng), 2);
    }
}
