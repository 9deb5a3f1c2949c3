//! Lengths by what sources tell of them: a mean and a deviation, or a range and a mean.

use rand::RngCore;
use rand_distr::{Beta, Distribution};

use crate::truth::lengths::LogNormal;

/// How closely a [`Bounded`] keeps to its mean (the sum of its beta distribution's two parameters). At 6, a mean
/// near the least value gives about an exponential tail. Ours: the sources tell ranges and means only.
const CONCENTRATION: f64 = 6.0;

/// Returns the lognormal of this mean and standard deviation.
pub(super) fn mean_sd(mean: f64, sd: f64) -> LogNormal {
    let variance = (1.0 + (sd / mean).powi(2)).ln();
    LogNormal { mu: mean.ln() - variance / 2.0, sigma: variance.sqrt() }
}

/// A range and the mean within it; a scaled beta distribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    /// Least.
    pub(super) least: f64,
    /// Mean.
    pub(super) mean: f64,
    /// Most.
    pub(super) most: f64,
}

impl Bounded {
    /// Draws one value; the mean itself where the range is none.
    pub(super) fn draw(self, rng: &mut dyn RngCore) -> f64 {
        let share = self.share();
        match Beta::new(share * CONCENTRATION, (1.0 - share) * CONCENTRATION) {
            Ok(beta) => self.least + (self.most - self.least) * beta.sample(rng),
            Err(_) => self.mean,
        }
    }

    /// Returns the standard deviation over the mean.
    pub(super) fn relative_deviation(self) -> f64 {
        let share = self.share();
        let deviation = (share * (1.0 - share) / (CONCENTRATION + 1.0)).sqrt();
        deviation * (self.most - self.least) / self.mean
    }

    fn share(self) -> f64 {
        (self.mean - self.least) / (self.most - self.least)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn draws_have_the_told_moments() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let bounded = Bounded { least: 100.0, mean: 1_500.0, most: 10_000.0 };
        let draws: Vec<f64> = (0..40_000).map(|_| bounded.draw(&mut rng)).collect();
        assert!(draws.iter().all(|value| (100.0..=10_000.0).contains(value)));
        let mean = draws.iter().sum::<f64>() / 40_000.0;
        assert!((mean / 1_500.0 - 1.0).abs() < 0.02, "{mean}");
        let variance = draws.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 40_000.0;
        assert!((variance.sqrt() / mean - bounded.relative_deviation()).abs() < 0.02);
        let law = mean_sd(8_000.0, 6_500.0);
        let draws: Vec<f64> = (0..80_000).map(|_| law.draw(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 80_000.0;
        let sd = (draws.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 80_000.0).sqrt();
        assert!((mean / 8_000.0 - 1.0).abs() < 0.02 && (sd / 6_500.0 - 1.0).abs() < 0.05, "{mean} {sd}");
    }
}
