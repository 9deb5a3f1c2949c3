//! What a simulated engine's batches and delays really take. The form is a roofline, unlike the
//! estimator's four terms (eq. 12), so that an estimator is never judged against its own formula.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// One member of a batch, as its time depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Tokens scheduled for it.
    pub tokens: u32,
    /// Its computed tokens before the batch.
    pub context_tokens: u32,
    /// Whether it decodes; otherwise it prefills.
    pub decodes: bool,
}

/// The time of a batch: a roofline over its tokens, plus attention a member.
///
/// `config/engines/*.yaml` explains each number and cites its source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchTimeTruth {
    /// Time that nothing overlaps, seconds.
    pub fixed_s: f64,
    /// Shortest time of the layers, whatever the tokens (weight reads, launches), seconds.
    pub floor_s: f64,
    /// Compute of the layers, seconds a token; the slower of this and the floor counts.
    pub compute_s_per_token: f64,
    /// Communication between devices, seconds a token.
    pub communication_s_per_token: f64,
    /// Output head, sampling and bookkeeping, seconds a member.
    pub sequence_s: f64,
    /// Reading a context token's keys and values, seconds.
    pub kv_read_s_per_token: f64,
    /// Computing one (query, key) pair, seconds.
    pub pair_s: f64,
}

impl BatchTimeTruth {
    /// Returns the time of a batch without noise, seconds.
    #[must_use]
    pub fn seconds(&self, members: impl IntoIterator<Item = Work>) -> f64 {
        let (mut tokens, mut extra_s) = (0.0, 0.0);
        for member in members {
            tokens += f64::from(member.tokens);
            extra_s += self.sequence_s + self.attention_s(member);
        }
        let layers_s = self.floor_s.max(self.compute_s_per_token * tokens);
        self.fixed_s + layers_s + self.communication_s_per_token * tokens + extra_s
    }

    /// Returns the tokens at which compute overtakes the floor: the corner of the roofline.
    #[must_use]
    pub fn corner_tokens(&self) -> f64 {
        self.floor_s / self.compute_s_per_token
    }

    fn attention_s(&self, member: Work) -> f64 {
        let (k, c) = (f64::from(member.tokens), f64::from(member.context_tokens));
        if member.decodes {
            return self.kv_read_s_per_token * c;
        }
        let pairs = k * c + k * (k + 1.0) / 2.0;
        (self.pair_s * pairs).max(self.kv_read_s_per_token * (c + k))
    }

    /// Returns the name and value of each coefficient, for checks.
    pub(crate) const fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("fixed_s", self.fixed_s),
            ("floor_s", self.floor_s),
            ("compute_s_per_token", self.compute_s_per_token),
            ("communication_s_per_token", self.communication_s_per_token),
            ("sequence_s", self.sequence_s),
            ("kv_read_s_per_token", self.kv_read_s_per_token),
            ("pair_s", self.pair_s),
        ]
    }
}

/// Returns a lognormal factor with mean one whose logarithm has the standard deviation `sigma`.
pub fn noise_factor(sigma: f64, rng: &mut ChaCha8Rng) -> f64 {
    let z: f64 = StandardNormal.sample(rng);
    (sigma * z - sigma * sigma / 2.0).exp()
}

/// A delay outside the batches: normal, cut at four deviations and at zero, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// Mean, seconds.
    pub mean_s: f64,
    /// Standard deviation, seconds.
    pub sd_s: f64,
}

impl Delay {
    /// Draws one delay, seconds, at least 0.
    pub fn draw_s(&self, rng: &mut impl Rng) -> f64 {
        let z: f64 = StandardNormal.sample(rng);
        (self.mean_s + self.sd_s * z.clamp(-4.0, 4.0)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const TRUTH: BatchTimeTruth = BatchTimeTruth {
        fixed_s: 1.0,
        floor_s: 10.0,
        compute_s_per_token: 0.1,
        communication_s_per_token: 0.01,
        sequence_s: 0.5,
        kv_read_s_per_token: 0.2,
        pair_s: 0.05,
    };

    fn decode(context_tokens: u32) -> Work {
        Work { tokens: 1, context_tokens, decodes: true }
    }

    fn prefill(tokens: u32, context_tokens: u32) -> Work {
        Work { tokens, context_tokens, decodes: false }
    }

    #[test]
    fn below_the_corner_the_floor_holds_and_above_it_compute_does() {
        assert!((TRUTH.corner_tokens() - 100.0).abs() < 1e-9);
        // 1 + 10 + 2·0.01 + 2·0.5 + 0.2·(7 + 8)
        let two = TRUTH.seconds([decode(7), decode(8)]);
        assert!((two - 15.02).abs() < 1e-9, "{two}");
        // 1 + 20 + 2 + 0.5 + 0.05·200·201/2
        let large = TRUTH.seconds([prefill(200, 0)]);
        assert!((large - (23.5 + 1005.0)).abs() < 1e-9, "{large}");
    }

    #[test]
    fn a_short_chunk_over_a_long_context_is_bound_by_its_reads() {
        // 2 tokens over 1,000: 2,003 pairs cost 100.15, 1,002 key reads 200.4.
        let t = TRUTH.seconds([prefill(2, 1000)]);
        assert!((t - (1.0 + 10.0 + 0.02 + 0.5 + 200.4)).abs() < 1e-9, "{t}");
    }

    #[test]
    fn noise_has_mean_one_and_the_asked_spread() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let draws: Vec<f64> = (0..20_000).map(|_| noise_factor(0.08, &mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let var = draws.iter().map(|d| (d.ln() + 0.0032).powi(2)).sum::<f64>() / 20_000.0;
        assert!((mean - 1.0).abs() < 0.003, "{mean}");
        assert!((var.sqrt() - 0.08).abs() < 0.002, "{var}");
        assert!(noise_factor(0.0, &mut rng) == 1.0);
    }

    #[test]
    fn delays_stay_within_four_deviations() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let delay = Delay { mean_s: 0.004, sd_s: 0.0004 };
        let draws: Vec<f64> = (0..20_000).map(|_| delay.draw_s(&mut rng)).collect();
        assert!(draws.iter().all(|&d| (0.0024..=0.0056).contains(&d)));
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        assert!((mean - 0.004).abs() < 2e-5, "{mean}");
    }
}
