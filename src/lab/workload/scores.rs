//! How well each model answers: mean scores by task and size (the paper's table 2), and the law that spreads
//! them over prompts.

use std::f64::consts::TAU;

use crate::truth::lengths::Task;

/// Parameters of the models of table 2, billions.
const SIZES_B: [f64; 3] = [0.6, 8.2, 32.8];
/// Paper, table 2 (A.1): mean scores of Qwen3-0.6B, 8B and 32B.
const TABLE_2: [(Task, [f64; 3]); 4] = [
    (Task::InstructionFollowing, [0.5349, 0.8267, 0.8885]),
    (Task::QuestionAnswering, [0.4098, 0.8828, 0.9269]),
    (Task::Summarisation, [0.2902, 0.8662, 0.9593]),
    (Task::CreativeWriting, [0.1773, 0.5747, 0.8069]),
];
/// Paper, table 2, aggregate: stands in where no task of the table does.
const AGGREGATE: [f64; 3] = [0.3531, 0.7876, 0.8954];
/// How strongly a prompt's difficulty moves a score's log-odds: a mean of 0.53 then has a standard deviation of
/// 0.24, one of 0.89 of 0.10.
const SLOPE: f64 = 1.3;
/// Half-width (standard deviations) and step of the sum that stands for the mean over difficulties.
const GRID: (i32, f64) = (6, 0.05);

/// Returns the mean score of a model of this size on `task` (absent: on none of the table's), the table's own
/// value at its models' sizes, between them linear in log-odds over log-parameters.
pub(super) fn mean_score(task: Option<Task>, parameters_b: f64) -> f64 {
    let row = TABLE_2.iter().find(|(known, _)| Some(*known) == task).map_or(AGGREGATE, |(_, scores)| *scores);
    let [small, middle, large] = SIZES_B;
    let (from, to) = if parameters_b < middle { (0, 1) } else { (1, 2) };
    let size = parameters_b.clamp(small, large);
    let share = (size / SIZES_B[from]).ln() / (SIZES_B[to] / SIZES_B[from]).ln();
    logistic(log_odds(row[from]) * (1.0 - share) + log_odds(row[to]) * share)
}

/// Scores of one model over prompts of one kind, by their difficulty for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreLaw {
    offset: f64,
}

impl ScoreLaw {
    /// Finds the law whose mean over standard normal difficulties is `mean`.
    pub(super) fn with_mean(mean: f64) -> Self {
        let (mut low, mut high) = (-30.0, 30.0);
        for _ in 0..60 {
            let offset = f64::midpoint(low, high);
            if (Self { offset }).mean() < mean { low = offset } else { high = offset }
        }
        Self { offset: f64::midpoint(low, high) }
    }

    /// Returns the score of a prompt of this difficulty, in `[0,1]`.
    pub(super) fn score(self, difficulty: f64) -> f64 {
        logistic(self.offset - SLOPE * difficulty)
    }

    fn mean(self) -> f64 {
        let (half, step) = GRID;
        let steps = (f64::from(half) / step) as i32;
        let density = |z: f64| (-z * z / 2.0).exp() / TAU.sqrt() * step;
        (-steps..=steps).map(|k| f64::from(k) * step).map(|z| density(z) * self.score(z)).sum()
    }
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn log_odds(share: f64) -> f64 {
    (share / (1.0 - share)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_of_table_2_have_its_means_and_others_lie_between() {
        for (task, scores) in TABLE_2 {
            for (size, score) in SIZES_B.into_iter().zip(scores) {
                assert!((mean_score(Some(task), size) - score).abs() < 1e-12);
            }
            let between = mean_score(Some(task), 14.8);
            assert!(scores[1] < between && between < scores[2], "{between}");
            assert!((mean_score(Some(task), 70.0) - scores[2]).abs() < 1e-12);
            assert!((mean_score(Some(task), 0.1) - scores[0]).abs() < 1e-12);
        }
        // The aggregate is the mean of the tasks, rounded.
        let mean = TABLE_2.iter().map(|(_, scores)| scores[2]).sum::<f64>() / 4.0;
        assert!((mean_score(None, 32.8) - mean).abs() < 1e-4);
    }

    #[test]
    fn a_law_keeps_the_mean_it_is_made_for() {
        for mean in [0.02, 0.1773, 0.5, 0.9593] {
            assert!((ScoreLaw::with_mean(mean).mean() - mean).abs() < 1e-9);
        }
        assert!((ScoreLaw::with_mean(0.5).score(0.0) - 0.5).abs() < 1e-6);
        let law = ScoreLaw::with_mean(0.8);
        assert!(law.score(-1.0) > law.score(1.0));
    }
}
