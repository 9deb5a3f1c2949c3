//! What each model makes of a workload on average: the knowledge of a router without a trained predictor.

use rand::RngCore;

use super::Workload;
use crate::lab::Item;

/// One model's means over a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanAnswer {
    /// Mean score over judged answers, in `[0,1]`; absent: none was judged.
    pub score: Option<f64>,
    /// Mean output tokens; absent: the workload is empty.
    pub output_tokens: Option<f64>,
}

/// Returns the means of `models` models over `draws` draws, later turns of each included, or over the whole of
/// a workload that ends before.
pub fn mean_answers(
    workload: &mut dyn Workload,
    models: usize,
    draws: usize,
    rng: &mut dyn RngCore,
) -> Vec<MeanAnswer> {
    let mut sums = vec![Sums::default(); models];
    for _ in 0..draws {
        let Some(item) = workload.next(rng) else { break };
        let mut turn = Some(&item);
        while let Some(item) = turn {
            add(&mut sums, item);
            turn = item.follow_up.as_ref().map(|next| &next.item);
        }
    }
    sums.into_iter().map(MeanAnswer::from).collect()
}

#[derive(Clone, Copy, Default)]
struct Sums {
    score: f64,
    judged: u64,
    tokens: u64,
    answers: u64,
}

fn add(sums: &mut [Sums], item: &Item) {
    for (sum, answer) in sums.iter_mut().zip(item.answers.iter()) {
        sum.score += answer.score.unwrap_or(0.0);
        sum.judged += u64::from(answer.score.is_some());
        sum.tokens += u64::from(answer.output_tokens);
        sum.answers += 1;
    }
}

impl From<Sums> for MeanAnswer {
    fn from(sums: Sums) -> Self {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        Self { score: mean(sums.score, sums.judged), output_tokens: mean(sums.tokens as f64, sums.answers) }
    }
}
