//! Means with 95% intervals, and percentiles.

use crate::lab::Interval;

/// Two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom (any table of the distribution).
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for very many degrees of freedom.
const NORMAL: f64 = 1.96;

/// Returns the mean with its 95% interval; of a single value the interval is the value itself. Absent: there
/// are no values.
#[must_use]
pub fn interval(values: &[f64]) -> Option<Interval> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() == 1 {
        return Some(Interval { mean, low: mean, high: mean });
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = STUDENT_T.get(values.len() - 2).copied().unwrap_or(NORMAL);
    let half = t * (variance / n).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half })
}

/// Returns the value below which a part of the sorted values lies (nearest rank); 0 of none.
#[must_use]
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}
