//! From prompts to evaluations: scores whose means are Table 2's, and output lengths.
//!
//! A prompt's difficulty is partly visible (its topic, its length, what it asks) and partly not, so that a
//! predictor can learn something and never everything. Each model meets it with noise of its own.

use bear::predict::FeatureTokens;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::{
    prompts::{self, Wish},
    prose::Writer,
    tasks::{MODELS, OUTPUT_CLIP, PROMPT_CLIP, TASKS, Task},
    words::Lexicon,
};
use crate::evaluations::{Content, Evaluation, SYNTHETIC_SCORER};

/// How strongly difficulty moves a score's log-odds.
const DIFFICULTY_SLOPE: f64 = 1.3;
/// Shares of a difficulty's variance: visible in the prompt, hidden in it, the model's own noise.
const DIFFICULTY_SHARES: [f64; 3] = [0.5, 0.2, 0.3];
/// The same of an answer's log-length.
const LENGTH_SHARES: [f64; 3] = [0.6, 0.25, 0.15];
/// Steps of the judge's scale.
const SCORE_STEPS: f64 = 100.0;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Synthesis {
    /// The seed of everything.
    pub seed: u64,
    /// Prompts, in equal parts of the four tasks.
    pub prompts: usize,
}

/// One prompt and the numbers behind its answers.
struct Draft {
    task: usize,
    prompt: String,
    /// Difficulty for each model, standard normal.
    difficulty: [f64; 3],
    /// Log-length of each model's answer around the task's, standard normal.
    length: [f64; 3],
}

/// Generates evaluations: one row a prompt and model, prompts in order, the same for the same seed.
#[must_use]
pub fn synthesize(plan: &Synthesis, tokens: &dyn FeatureTokens) -> Vec<Evaluation> {
    let lexicon = Lexicon::load();
    let drafts: Vec<Draft> = (0..plan.prompts).map(|i| draft(plan.seed, i, &lexicon, tokens)).collect();
    let offsets: Vec<[f64; 3]> =
        TASKS.iter().enumerate().map(|(t, task)| offsets(t, task, &drafts)).collect();
    let mut rows = Vec::with_capacity(drafts.len() * MODELS.len());
    for (i, draft) in drafts.into_iter().enumerate() {
        let task = &TASKS[draft.task];
        for (m, model) in MODELS.iter().enumerate() {
            let score = score(offsets[draft.task][m], draft.difficulty[m]);
            let log_length = task.output.mu + task.output.sigma * draft.length[m] + model.output_factor.ln();
            let output_tokens = log_length.exp().clamp(OUTPUT_CLIP.0, OUTPUT_CLIP.1).round();
            rows.push(Evaluation {
                prompt_id: format!("synthetic-{}-{i:06}", plan.seed),
                content: Content::Prompt(draft.prompt.clone()),
                model: model.id.to_owned(),
                score: (score * SCORE_STEPS).round() / SCORE_STEPS,
                output_tokens: Some(output_tokens),
                task: Some(task.name.to_owned()),
                scorer: Some(SYNTHETIC_SCORER.to_owned()),
            });
        }
    }
    rows
}

fn draft(seed: u64, i: usize, lexicon: &Lexicon, tokens: &dyn FeatureTokens) -> Draft {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(i as u64);
    let task_index = i % TASKS.len();
    let task = &TASKS[task_index];
    let topic = &lexicon.topics[rng.random_range(0..lexicon.topics.len())];
    let normal = |rng: &mut ChaCha8Rng| -> f64 { StandardNormal.sample(rng) };
    let size = normal(&mut rng);
    let length_pull = normal(&mut rng);
    let answer_tokens = (task.output.mu + task.output.sigma * length_pull).exp();
    // Long prompts, hard topics and asking for much make a prompt hard; the three parts have variance 1.
    let topic_level = (topic.level - 0.4625) / 0.19;
    let visible = (0.8 * topic_level + 0.5 * size + 0.33 * length_pull) / (0.64_f64 + 0.25 + 0.11).sqrt();
    let mix = |shares: [f64; 3], seen: f64, hidden: f64, rng: &mut ChaCha8Rng| -> [f64; 3] {
        let [a, b, c] = shares.map(f64::sqrt);
        std::array::from_fn(|_| a * seen + b * hidden + c * normal(rng))
    };
    let hidden = normal(&mut rng);
    let difficulty = mix(DIFFICULTY_SHARES, visible, hidden, &mut rng);
    let hidden = normal(&mut rng);
    let length = mix(LENGTH_SHARES, length_pull, hidden, &mut rng);
    let wanted = (task.prompt.mu + task.prompt.sigma * size).exp().clamp(PROMPT_CLIP.0, PROMPT_CLIP.1);
    let wish = Wish { kind: task.kind, tokens: wanted, length_pull, answer_tokens };
    let count = |text: &str| tokens.token_ids(text).map_or(0, |ids| ids.len());
    let prompt = prompts::write(&wish, &mut Writer::new(lexicon, topic, rng), &count);
    Draft { task: task_index, prompt, difficulty, length }
}

fn score(offset: f64, difficulty: f64) -> f64 {
    1.0 / (1.0 + (DIFFICULTY_SLOPE * difficulty - offset).exp())
}

/// Finds each model's offset such that its mean score over the task's prompts is Table 2's, by bisection.
fn offsets(index: usize, task: &Task, drafts: &[Draft]) -> [f64; 3] {
    std::array::from_fn(|m| {
        let difficulties: Vec<f64> =
            drafts.iter().filter(|draft| draft.task == index).map(|draft| draft.difficulty[m]).collect();
        let mean = |offset: f64| {
            difficulties.iter().map(|d| score(offset, *d)).sum::<f64>() / difficulties.len().max(1) as f64
        };
        let (mut low, mut high) = (-20.0, 20.0);
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if mean(middle) < task.scores[m] { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    })
}

#[cfg(test)]
mod tests {
    use bear::predict::BpeTokens;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_rows() {
        let tokens = BpeTokens::built_in();
        let rows = |seed| synthesize(&Synthesis { seed, prompts: 8 }, &tokens);
        assert_eq!(rows(5), rows(5));
        assert_ne!(rows(5), rows(6));
        assert_eq!(rows(5).len(), 24);
    }

    #[test]
    fn means_are_table_2_and_lengths_are_the_specified_ones() {
        let rows = synthesize(&Synthesis { seed: 1, prompts: 400 }, &BpeTokens::built_in());
        for task in &TASKS {
            for (m, model) in MODELS.iter().enumerate() {
                let of: Vec<&Evaluation> = rows
                    .iter()
                    .filter(|r| r.model == model.id && r.task.as_deref() == Some(task.name))
                    .collect();
                let mean = of.iter().map(|r| r.score).sum::<f64>() / of.len() as f64;
                assert!((mean - task.scores[m]).abs() < 0.005, "{} {}: {mean}", task.name, model.id);
                let logs: Vec<f64> = of.iter().filter_map(|r| r.output_tokens).map(f64::ln).collect();
                let mean_log = logs.iter().sum::<f64>() / logs.len() as f64;
                let expected = task.output.mu + model.output_factor.ln();
                assert!((mean_log - expected).abs() < 0.3, "{} {}: {mean_log}", task.name, model.id);
            }
        }
    }

    #[test]
    fn prompts_are_as_long_as_their_task_says() {
        let tokens = BpeTokens::built_in();
        let rows = synthesize(&Synthesis { seed: 2, prompts: 160 }, &tokens);
        for task in &TASKS {
            let mut logs: Vec<f64> = Vec::new();
            for row in rows.iter().filter(|r| r.task.as_deref() == Some(task.name)).step_by(3) {
                let Content::Prompt(prompt) = &row.content else {
                    panic!("a synthetic row without its prompt")
                };
                logs.push((tokens.token_ids(prompt).unwrap().len() as f64).ln());
            }
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            assert!(
                (mean - task.prompt.mu).abs() < 0.3,
                "{}: {mean}, expected {}",
                task.name,
                task.prompt.mu
            );
        }
    }
}
