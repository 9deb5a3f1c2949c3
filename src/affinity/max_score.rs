//! The max-score picker: best score first, equal scores in uniformly random order, so that idle
//! replicas share the traffic.

use rand::{RngCore, seq::SliceRandom};

use super::{Picker, Ranked};

/// Orders by falling score with ties shuffled.
#[derive(Clone, Copy, Debug)]
pub struct MaxScore;

impl Picker for MaxScore {
    fn name(&self) -> &'static str {
        "max-score"
    }

    fn order(&self, scores: &[f64], mut rng: &mut dyn RngCore) -> Vec<Ranked> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.shuffle(&mut rng);
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut tier = 0;
        let mut previous: Option<f64> = None;
        order
            .into_iter()
            .map(|position| {
                if previous.is_some_and(|p| p.total_cmp(&scores[position]).is_ne()) {
                    tier += 1;
                }
                previous = Some(scores[position]);
                Ranked { position, tier, weight: 1.0 }
            })
            .collect()
    }
}
