//! Weighted means in one pass: importance sampling, self-normalised, with its interval and effective size.

use serde::Serialize;

/// Two-sided 95% quantile of the normal distribution.
const Z_95: f64 = 1.959_964;

/// Sums of one quantity over weighted rows. A weight of 1 everywhere gives the plain mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    rows: u64,
    w: f64,
    ww: f64,
    wy: f64,
    wwy: f64,
    wwyy: f64,
}

/// A mean with the ends of its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimated {
    /// `Σwy / Σw`: the self-normalised estimate.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// `(Σw)² / Σw²`: how many unweighted rows would tell as much.
    pub effective_rows: f64,
    /// Rows that hold the quantity, those of weight 0 included.
    pub rows: u64,
    /// `Σwy / rows`: the plain importance-sampling estimate, unbiased but wider.
    pub ips_mean: f64,
}

impl Moments {
    /// Returns the sums of a share: `yes` of `rows`, each of weight 1.
    #[must_use]
    pub const fn of_share(yes: u64, rows: u64) -> Self {
        let (w, wy) = (rows as f64, yes as f64);
        Self { rows, w, ww: w, wy, wwy: wy, wwyy: wy }
    }

    /// Adds a row.
    pub fn add(&mut self, weight: f64, value: f64) {
        self.rows += 1;
        self.w += weight;
        self.ww += weight * weight;
        self.wy += weight * value;
        self.wwy += weight * weight * value;
        self.wwyy += weight * weight * value * value;
    }

    /// Adds a row where the value is known.
    pub fn add_known(&mut self, weight: f64, value: Option<f64>) {
        if let Some(value) = value {
            self.add(weight, value);
        }
    }

    /// Returns the rows added.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns `(Σw)² / Σw²`, Kish's effective sample size; 0 without weight.
    #[must_use]
    pub fn effective_rows(&self) -> f64 {
        if self.ww > 0.0 { self.w * self.w / self.ww } else { 0.0 }
    }

    /// Returns the estimate; absent without weight.
    ///
    /// The variance of the ratio is the delta method's, `Σw²(y − ŷ)² / (Σw)²`, unfolded into the sums kept.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimated> {
        if self.w <= 0.0 {
            return None;
        }
        let mean = self.wy / self.w;
        let squares = self.wwyy - 2.0 * mean * self.wwy + mean * mean * self.ww;
        let reach = Z_95 * squares.max(0.0).sqrt() / self.w;
        Some(Estimated {
            mean,
            low: mean - reach,
            high: mean + reach,
            effective_rows: self.effective_rows(),
            rows: self.rows,
            ips_mean: self.wy / self.rows as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count_as_computed_by_hand() {
        let mut moments = Moments::default();
        for (weight, value) in [(2.0, 1.0), (1.0, 4.0), (0.0, 100.0), (1.0, 2.0)] {
            moments.add(weight, value);
        }
        let estimate = moments.estimate().unwrap();
        // Σw = 4, Σwy = 2 + 4 + 0 + 2 = 8, Σw² = 4 + 1 + 1 = 6.
        assert_eq!((estimate.mean, estimate.ips_mean, estimate.rows), (2.0, 2.0, 4));
        assert!((estimate.effective_rows - 16.0 / 6.0).abs() < 1e-12);
        // Σw²(y − 2)² = 4·1 + 1·4 + 0 + 1·0 = 8; the error is √8 / 4.
        let reach = Z_95 * 8.0_f64.sqrt() / 4.0;
        assert!((estimate.high - 2.0 - reach).abs() < 1e-12 && (2.0 - estimate.low - reach).abs() < 1e-12);
    }

    #[test]
    fn ips_and_snips_differ_where_weights_do_not_average_to_one() {
        let mut moments = Moments::default();
        moments.add(2.0, 3.0);
        moments.add(0.0, 7.0);
        moments.add(0.0, 7.0);
        let estimate = moments.estimate().unwrap();
        // Σwy = 6 over Σw = 2, and over 3 rows.
        assert_eq!((estimate.mean, estimate.ips_mean, estimate.effective_rows), (3.0, 2.0, 1.0));
    }

    #[test]
    fn a_share_is_the_mean_of_ones_and_zeros() {
        let mut one_by_one = Moments::default();
        for value in [1.0, 0.0, 0.0, 1.0, 1.0] {
            one_by_one.add(1.0, value);
        }
        assert_eq!(Moments::of_share(3, 5), one_by_one);
        // √(0.6·0.4/5) times 1.96.
        let estimate = one_by_one.estimate().unwrap();
        assert!((estimate.high - 0.6 - Z_95 * (0.24_f64 / 5.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn nothing_weighs_nothing() {
        let mut moments = Moments::default();
        assert_eq!((moments.estimate(), moments.effective_rows()), (None, 0.0));
        moments.add(0.0, 1.0);
        moments.add_known(1.0, None);
        assert_eq!((moments.estimate(), moments.rows()), (None, 1));
    }
}
