//! Relative least squares of eq. 12 under non-negative coefficients.
//!
//! The best fit is the plain least squares on its own support, so with five columns every support is
//! tried: 31 small solves on one QR decomposition, exact and without a stopping rule.

use nalgebra::{DMatrix, DVector};

use super::{CalibrateError, Sample};
use crate::domain::BatchTimeCoefficients;

/// What to fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FitOptions {
    /// Fits the fifth term too (time a member that emits); else it is 0, as in the paper.
    pub emitting_term: bool,
}

/// Fitted coefficients and how well they describe the samples they were fitted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Non-negative coefficients.
    pub coefficients: BatchTimeCoefficients,
    /// Mean of |predicted − observed| / observed (0.04 is 4%).
    pub mape: f64,
    /// Largest of the same.
    pub max_relative_error: f64,
    /// Samples fitted.
    pub samples: usize,
}

impl Fit {
    /// Judges given coefficients on samples.
    #[must_use]
    pub fn judge(coefficients: BatchTimeCoefficients, samples: &[Sample]) -> Self {
        let (mut sum, mut max) = (0.0, 0.0_f64);
        for sample in samples {
            let error = (predict_s(&coefficients, sample) / sample.duration_s - 1.0).abs();
            sum += error;
            max = max.max(error);
        }
        Self {
            coefficients,
            mape: sum / samples.len() as f64,
            max_relative_error: max,
            samples: samples.len(),
        }
    }
}

/// Returns eq. 12 for a sample's work, seconds.
fn predict_s(b: &BatchTimeCoefficients, sample: &Sample) -> f64 {
    let [one, tokens, context, pairs, emitting] = columns(sample);
    b.b0_s * one + b.b1_s * tokens + b.b2_s * context + b.b3_s * pairs + b.b4_s * emitting
}

fn columns(sample: &Sample) -> [f64; 5] {
    let work = &sample.work;
    [
        1.0,
        work.tokens as f64,
        work.decode_context_tokens as f64,
        work.prefill_pairs as f64,
        work.emitting as f64,
    ]
}

/// Fits eq. 12 by least squares of the relative error Σ (predicted / observed − 1)².
///
/// # Errors
/// Fewer samples than coefficients, or a duration that is not finite and positive.
pub fn fit(samples: &[Sample], options: FitOptions) -> Result<Fit, CalibrateError> {
    let num_columns = if options.emitting_term { 5 } else { 4 };
    if samples.len() < num_columns {
        return Err(CalibrateError::TooFewSamples { samples: samples.len(), coefficients: num_columns });
    }
    let bad = |s: &Sample| !(s.duration_s.is_finite() && s.duration_s > 0.0);
    if let Some(index) = samples.iter().position(bad) {
        return Err(CalibrateError::BadDuration { index, duration_s: samples[index].duration_s });
    }
    let relative =
        DMatrix::from_fn(samples.len(), num_columns, |i, j| columns(&samples[i])[j] / samples[i].duration_s);
    let scales: Vec<f64> = relative.column_iter().map(|column| column.norm()).collect();
    let scaled = DMatrix::from_fn(samples.len(), num_columns, |i, j| match scales[j] {
        0.0 => 0.0,
        scale => relative[(i, j)] / scale,
    });
    let (q, r) = scaled.qr().unpack();
    let target = q.transpose() * DVector::from_element(samples.len(), 1.0);
    let solution = best_support(&r, &target, &scales).ok_or(CalibrateError::NoFit)?;
    let at = |column: usize| match solution.get(column) {
        Some(&x) if x > 0.0 => x / scales[column],
        _ => 0.0,
    };
    let coefficients =
        BatchTimeCoefficients { b0_s: at(0), b1_s: at(1), b2_s: at(2), b3_s: at(3), b4_s: at(4) };
    Ok(Fit::judge(coefficients, samples))
}

/// Returns the least squares solution with the smallest residual among the non-negative ones over
/// every subset of columns; columns that are all zero stay out.
fn best_support(r: &DMatrix<f64>, target: &DVector<f64>, scales: &[f64]) -> Option<Vec<f64>> {
    let num_columns = scales.len();
    let mut best: Option<(f64, Vec<f64>)> = None;
    for support in 1_u32..1 << num_columns {
        let columns: Vec<usize> = (0..num_columns).filter(|j| support & (1 << j) != 0).collect();
        if columns.iter().any(|&j| scales[j] == 0.0) {
            continue;
        }
        let part = r.select_columns(&columns);
        let Ok(x) = part.clone().svd(true, true).solve(target, 1e-12) else { continue };
        if x.iter().any(|value| !value.is_finite() || *value < 0.0) {
            continue;
        }
        let residual = (part * &x - target).norm_squared();
        if best.as_ref().is_none_or(|(least, _)| residual < *least) {
            let mut solution = vec![0.0; num_columns];
            for (&column, value) in columns.iter().zip(x.iter()) {
                solution[column] = *value;
            }
            best = Some((residual, solution));
        }
    }
    best.map(|(_, solution)| solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::BatchWork;

    const TRUE: BatchTimeCoefficients =
        BatchTimeCoefficients { b0_s: 6.76e-3, b1_s: 2.0e-5, b2_s: 4.53e-8, b3_s: 2.19e-9, b4_s: 1e-4 };

    /// A spread of decode, prefill and mixed batches with durations by `TRUE` times `noise(i)`.
    fn samples(b: &BatchTimeCoefficients, noise: impl Fn(usize) -> f64) -> Vec<Sample> {
        (0..200_usize)
            .map(|i| {
                let mut work = BatchWork::default();
                for seq in 0..(i as u32 % 17) {
                    work.add(1, 100 + 37 * seq * (i as u32 % 5), true, true);
                }
                if i % 3 == 0 {
                    work.add(1 + 41 * i as u32 % 2000, 512 * (i as u32 % 4), false, i % 2 == 0);
                }
                let mut sample = Sample { work, duration_s: 0.0 };
                sample.duration_s = predict_s(b, &sample) * noise(i);
                sample
            })
            .collect()
    }

    fn close(a: f64, b: f64, relative: f64) -> bool {
        (a - b).abs() <= relative * b.abs()
    }

    #[test]
    fn exact_samples_give_their_coefficients_back() {
        let fit = fit(&samples(&TRUE, |_| 1.0), FitOptions { emitting_term: true }).unwrap();
        let b = fit.coefficients;
        assert!(close(b.b0_s, TRUE.b0_s, 1e-6) && close(b.b1_s, TRUE.b1_s, 1e-6), "{b:?}");
        assert!(close(b.b2_s, TRUE.b2_s, 1e-6) && close(b.b3_s, TRUE.b3_s, 1e-6), "{b:?}");
        assert!(close(b.b4_s, TRUE.b4_s, 1e-6), "{b:?}");
        assert!(fit.max_relative_error < 1e-9);
    }

    #[test]
    fn a_term_that_would_be_negative_is_zero_and_the_rest_is_refitted() {
        let rebate = BatchTimeCoefficients { b4_s: -2e-5, ..TRUE };
        let fit = fit(&samples(&rebate, |_| 1.0), FitOptions { emitting_term: true }).unwrap();
        assert_eq!(fit.coefficients.b4_s, 0.0);
        let four = super::fit(&samples(&rebate, |_| 1.0), FitOptions::default()).unwrap();
        assert!(close(four.coefficients.b1_s, fit.coefficients.b1_s, 1e-6));
        assert!(fit.mape > 0.0 && fit.mape < 0.05);
    }

    #[test]
    fn the_fit_is_relative() {
        // Two durations at the same work: relative least squares gives Σ(1/y) / Σ(1/y²), not the mean.
        let at = |duration_s| Sample { work: BatchWork::default(), duration_s };
        let fit = fit(&[at(1.0), at(3.0), at(1.0), at(3.0)], FitOptions::default()).unwrap();
        assert!(close(fit.coefficients.b0_s, (4.0 / 3.0) / (10.0 / 9.0), 1e-9), "{fit:?}");
        assert!(close(fit.mape, (0.2 + 0.6) / 2.0, 1e-9), "{fit:?}");
    }

    #[test]
    fn unusable_samples_are_named() {
        let good = samples(&TRUE, |_| 1.0);
        let mut bad = good.clone();
        bad[7].duration_s = 0.0;
        let error = fit(&bad, FitOptions::default());
        assert_eq!(error, Err(CalibrateError::BadDuration { index: 7, duration_s: 0.0 }));
        let error = fit(&good[..3], FitOptions::default());
        assert_eq!(error, Err(CalibrateError::TooFewSamples { samples: 3, coefficients: 4 }));
    }
}
