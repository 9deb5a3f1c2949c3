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

/// A mean with the ends of its 95% interval, which takes rows as independent of each other.
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

    /// Returns `Σw`.
    #[must_use]
    pub const fn weight(&self) -> f64 {
        self.w
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
        let reach = Z_95 * self.variance(mean).sqrt();
        Some(Estimated {
            mean,
            low: mean - reach,
            high: mean + reach,
            effective_rows: self.effective_rows(),
            rows: self.rows,
            ips_mean: self.wy / self.rows as f64,
        })
    }

    /// Returns the estimate of a share, whose values are 0 and 1; absent without weight.
    ///
    /// Its interval is Wilson's, which has a width at 0 and 1 too, for as many rows as the delta method's variance
    /// is worth; at 0 and 1, where that is 0, for the effective rows.
    #[must_use]
    pub fn estimate_share(&self) -> Option<Estimated> {
        let estimate = self.estimate()?;
        let (share, variance) = (estimate.mean, self.variance(estimate.mean));
        let rows = match share * (1.0 - share) / variance {
            rows if rows.is_finite() && rows > 0.0 => rows,
            _ => estimate.effective_rows,
        };
        let z2 = Z_95 * Z_95 / rows;
        let centre = (share + z2 / 2.0) / (1.0 + z2);
        let reach = (z2 * share * (1.0 - share) + z2 * z2 / 4.0).max(0.0).sqrt() / (1.0 + z2);
        Some(Estimated {
            low: (centre - reach).clamp(0.0, share.clamp(0.0, 1.0)),
            high: (centre + reach).clamp(share.clamp(0.0, 1.0), 1.0),
            ..estimate
        })
    }

    fn variance(&self, mean: f64) -> f64 {
        let squares = self.wwyy - 2.0 * mean * self.wwy + mean * mean * self.ww;
        squares.max(0.0) / (self.w * self.w)
    }
}

/// Returns the estimate of a product `share · mean`, the mean being that of the rows in the share.
///
/// The parts are uncorrelated, so the reaches of their intervals add as squares (Donner and Zou's MOVER). Where
/// the share is 0 no mean is needed: it is taken to be at most 1, as utilities are.
pub(super) fn product(share: &Estimated, mean: Option<&Estimated>) -> Option<Estimated> {
    let Some(mean) = mean else {
        return (share.mean <= 0.0).then_some(Estimated { mean: 0.0, low: 0.0, high: share.high, ..*share });
    };
    let (p, m) = (share.mean, mean.mean);
    let (fewer, more) = (p - share.low, share.high - p);
    // A negative mean is further from 0 at the larger share.
    let (down, up) = if m < 0.0 { (more, fewer) } else { (fewer, more) };
    Some(Estimated {
        mean: p * m,
        low: p * m - (p * (m - mean.low)).hypot(m * down),
        high: p * m + (p * (mean.high - m)).hypot(m * up),
        effective_rows: share.effective_rows.min(mean.effective_rows),
        rows: share.rows,
        ips_mean: share.ips_mean * m,
    })
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
    fn a_share_of_all_or_none_is_not_certain() {
        // Wilson's upper end at 0 of n is z²/(n + z²): 3.8415/13.8415.
        let none = Moments::of_share(0, 10).estimate_share().unwrap();
        assert_eq!((none.mean, none.low), (0.0, 0.0));
        assert!((none.high - 0.277_53).abs() < 1e-4, "{none:?}");
        let all = Moments::of_share(10, 10).estimate_share().unwrap();
        assert!((all.low - (1.0 - none.high)).abs() < 1e-12 && all.high == 1.0, "{all:?}");
        // 3 of 5: centre (0.6 + 0.384)/1.768, reach √(0.7683·0.24 + 0.1476)/1.768.
        let some = Moments::of_share(3, 5).estimate_share().unwrap();
        assert!((some.low - 0.230_7).abs() < 1e-3 && (some.high - 0.882_4).abs() < 1e-3, "{some:?}");
        // Weights that leave as much as two rows tell less than four equal ones.
        let mut weighted = Moments::default();
        for (weight, value) in [(1.0, 1.0), (0.1, 1.0), (1.0, 1.0), (0.1, 1.0)] {
            weighted.add(weight, value);
        }
        let four = Moments::of_share(4, 4).estimate_share().unwrap();
        assert!(weighted.estimate_share().unwrap().low < four.low - 0.1);
    }

    #[test]
    fn a_product_reaches_as_far_as_its_parts() {
        let of = |mean: f64, low: f64, high: f64| Estimated {
            mean,
            low,
            high,
            effective_rows: 10.0,
            rows: 10,
            ips_mean: mean,
        };
        let share = of(0.5, 0.4, 0.7);
        let up = product(&share, Some(&of(0.6, 0.5, 0.7))).unwrap();
        // Below: √((0.5·0.1)² + (0.6·0.1)²); above: √((0.5·0.1)² + (0.6·0.2)²) = 0.13.
        assert!((up.mean - 0.3).abs() < 1e-12 && (up.high - 0.43).abs() < 1e-12, "{up:?}");
        assert!((up.low - 0.3 + 0.0061_f64.sqrt()).abs() < 1e-12, "{up:?}");
        let down = product(&share, Some(&of(-0.6, -0.7, -0.5))).unwrap();
        assert!((down.low + 0.43).abs() < 1e-12, "{down:?}");
        assert_eq!(product(&share, None), None);
        assert_eq!(product(&of(0.0, 0.0, 0.1), None).unwrap().high, 0.1);
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
