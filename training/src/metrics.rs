//! How good predictions are on held-out rows, beside predicting each model's training mean.

use bear::predict::SplitMetrics;

/// One held-out row: which prompt, what came, what was predicted, what the model's mean says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The prompt's position.
    pub prompt: usize,
    /// What came.
    pub truth: f64,
    /// What was predicted.
    pub predicted: f64,
    /// The model's training mean.
    pub baseline: f64,
}

/// Measures held-out rows; none where there are none.
#[must_use]
pub fn measure(outcomes: &[Outcome]) -> Option<SplitMetrics> {
    if outcomes.is_empty() {
        return None;
    }
    let rows = outcomes.len() as f64;
    let mean = outcomes.iter().map(|o| o.truth).sum::<f64>() / rows;
    let variance: f64 = outcomes.iter().map(|o| (o.truth - mean).powi(2)).sum();
    let absolute =
        |guess: fn(&Outcome) -> f64| outcomes.iter().map(|o| (guess(o) - o.truth).abs()).sum::<f64>() / rows;
    let squared =
        |guess: fn(&Outcome) -> f64| outcomes.iter().map(|o| (guess(o) - o.truth).powi(2)).sum::<f64>();
    // All held-out values alike: nothing to explain.
    let explained = |squared: f64| if variance > 0.0 { 1.0 - squared / variance } else { 0.0 };
    let (model, baseline) = (squared(|o| o.predicted), squared(|o| o.baseline));
    Some(SplitMetrics {
        rows: outcomes.len() as u64,
        mae: absolute(|o| o.predicted),
        baseline_mae: absolute(|o| o.baseline),
        rmse: (model / rows).sqrt(),
        baseline_rmse: (baseline / rows).sqrt(),
        r2: explained(model),
        baseline_r2: explained(baseline),
        pair_order: pair_order(outcomes, |o| o.predicted),
        baseline_pair_order: pair_order(outcomes, |o| o.baseline),
    })
}

/// Returns the share of the pairs of answers to one prompt, different in truth, that `guess` orders rightly; a tie
/// counts half.
fn pair_order(outcomes: &[Outcome], guess: fn(&Outcome) -> f64) -> f64 {
    let mut sorted: Vec<&Outcome> = outcomes.iter().collect();
    sorted.sort_by_key(|o| o.prompt);
    let (mut pairs, mut right) = (0.0_f64, 0.0_f64);
    for same_prompt in sorted.chunk_by(|a, b| a.prompt == b.prompt) {
        for (i, first) in same_prompt.iter().enumerate() {
            for second in same_prompt.iter().skip(i + 1).filter(|second| second.truth != first.truth) {
                pairs += 1.0;
                let agreement = (first.truth - second.truth) * (guess(first) - guess(second));
                right += if agreement > 0.0 {
                    1.0
                } else if agreement == 0.0 {
                    0.5
                } else {
                    0.0
                };
            }
        }
    }
    if pairs > 0.0 { right / pairs } else { 0.5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn outcome(prompt: usize, truth: f64, predicted: f64, baseline: f64) -> Outcome {
        Outcome { prompt, truth, predicted, baseline }
    }

    #[test]
    fn errors_are_those_of_the_definition() {
        let metrics = measure(&[outcome(0, 0.0, 0.1, 0.5), outcome(0, 1.0, 0.7, 0.5)]).unwrap();
        assert!((metrics.mae - 0.2).abs() < 1e-12);
        assert!((metrics.baseline_mae - 0.5).abs() < 1e-12);
        assert!((metrics.rmse - 0.05_f64.sqrt()).abs() < 1e-12);
        assert!((metrics.r2 - 0.8).abs() < 1e-12);
        assert!(metrics.baseline_r2.abs() < 1e-12);
        assert_eq!((metrics.pair_order, metrics.baseline_pair_order), (1.0, 0.5));
    }

    #[test]
    fn pairs_are_formed_within_a_prompt_only() {
        let rows = [outcome(0, 0.0, 5.0, 0.0), outcome(1, 1.0, 1.0, 0.0), outcome(1, 0.0, 2.0, 1.0)];
        let metrics = measure(&rows).unwrap();
        assert_eq!(metrics.pair_order, 0.0);
        assert_eq!(measure(&rows[..2]).unwrap().pair_order, 0.5, "no pair at all");
        assert!(measure(&[]).is_none());
    }
}
