//! Prefill throughputs of an instance, tokens a second.

use super::Sample;
use crate::{
    domain::BatchTimeCoefficients,
    engine::{BatchTime, BatchWork, seconds},
};

/// Returns θ_pre of eq. 8 and 14 from measured batches: those without prefill are left out, those with
/// some count whole, their decodes' time included. `None` where all are left out.
#[must_use]
pub fn effective_prefill_tokens_per_s(samples: &[Sample]) -> Option<f64> {
    let (mut tokens, mut time_s) = (0, 0.0);
    for sample in samples.iter().filter(|sample| sample.work.prefill_tokens > 0) {
        tokens += sample.work.prefill_tokens;
        time_s += sample.duration_s;
    }
    (time_s > 0.0).then(|| tokens as f64 / time_s)
}

/// Returns the rate by eq. 12 of a step whose whole budget goes to the beginning of one prompt, the
/// fastest prefill there is; bounds the affinity gate.
#[must_use]
pub fn peak_prefill_tokens_per_s(b: &BatchTimeCoefficients, max_num_batched_tokens: u32) -> f64 {
    let mut work = BatchWork::default();
    work.add(max_num_batched_tokens, 0, false, true);
    f64::from(max_num_batched_tokens) / seconds(BatchTime::from(b).duration(&work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_throughput_counts_whole_batches_but_only_prefill_tokens() {
        let mut mixed = BatchWork::default();
        mixed.add(100, 0, false, true);
        mixed.add(1, 50, true, true);
        let mut decode = BatchWork::default();
        decode.add(1, 50, true, true);
        let samples = [Sample { work: mixed, duration_s: 0.5 }, Sample { work: decode, duration_s: 9.0 }];
        assert_eq!(effective_prefill_tokens_per_s(&samples), Some(200.0));
        assert_eq!(effective_prefill_tokens_per_s(&samples[1..]), None);
    }

    #[test]
    fn the_peak_is_one_full_chunk() {
        let b = BatchTimeCoefficients { b0_s: 6.76e-3, b1_s: 2.0e-5, b2_s: 0.0, b3_s: 2.19e-9, b4_s: 0.0 };
        let peak = peak_prefill_tokens_per_s(&b, 8192);
        assert!((peak - 33_560.0).abs() < 100.0, "{peak}");
    }
}
