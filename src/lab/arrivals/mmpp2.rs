//! Bursts: a two-state Markov-modulated Poisson process (paper appendix B).
//!
//! Arrivals are Poisson at rate α_L or α_H = r·α_L; the state is H for a share p_H of the time and its
//! correlation decays with time constant τ, so that z_LH = p_H/τ and z_HL = (1 − p_H)/τ.

use rand::{Rng, RngCore};
use rand_distr::{Distribution, Exp1};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Arrivals, Files, KIND, micros, parse};
use crate::lab::{LabError, options};

/// The registered name.
pub(super) const NAME: &str = "mmpp2";

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Mean arrivals a second over both states.
    rate_qps: f64,
    /// r = α_H/α_L, at least 1.
    ratio: f64,
    /// p_H, the share of time in the high state (appendix B: 0.2).
    #[serde(default = "high_share")]
    high_share: f64,
    /// τ, seconds (appendix B: 2).
    #[serde(default = "correlation_s")]
    correlation_s: f64,
}

const fn high_share() -> f64 {
    0.2
}

const fn correlation_s() -> f64 {
    2.0
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    /// Arrivals a second in the low and in the high state.
    arrivals_qps: [f64; 2],
    /// Transitions a second out of the low and out of the high state.
    leave_per_s: [f64; 2],
}

impl From<Options> for Rates {
    fn from(options: Options) -> Self {
        let Options { rate_qps, ratio, high_share, correlation_s } = options;
        let low = rate_qps / ((1.0 - high_share) + high_share * ratio);
        Self {
            arrivals_qps: [low, ratio * low],
            leave_per_s: [high_share / correlation_s, (1.0 - high_share) / correlation_s],
        }
    }
}

struct Mmpp2 {
    rates: Rates,
    high_share: f64,
    at_s: f64,
    /// State and when it ends; absent: not begun.
    state: Option<(usize, f64)>,
}

/// Makes the process.
pub(super) fn build(options: &Map<String, Value>, _files: &Files) -> Result<Box<dyn Arrivals>, LabError> {
    let options: Options = parse(NAME, options)?;
    options::positive(KIND, NAME, "rate_qps", options.rate_qps)?;
    options::positive(KIND, NAME, "correlation_s", options.correlation_s)?;
    if !(options.ratio.is_finite() && options.ratio >= 1.0) {
        let what = format!("`ratio` is {}; it must be a finite number of at least 1", options.ratio);
        return Err(options::refused(KIND, NAME, &what));
    }
    if !(options.high_share > 0.0 && options.high_share < 1.0) {
        let what = format!("`high_share` is {}; it must lie between 0 and 1", options.high_share);
        return Err(options::refused(KIND, NAME, &what));
    }
    let high_share = options.high_share;
    Ok(Box::new(Mmpp2 { rates: options.into(), high_share, at_s: 0.0, state: None }))
}

impl Mmpp2 {
    fn stay(&self, state: usize, rng: &mut dyn RngCore) -> f64 {
        let unit: f64 = Exp1.sample(rng);
        unit / self.rates.leave_per_s[state]
    }
}

impl Arrivals for Mmpp2 {
    fn next_us(&mut self, rng: &mut dyn RngCore) -> Option<u64> {
        let (mut state, mut ends_s) = match self.state {
            Some(state) => state,
            None => {
                let state = usize::from(rng.random_bool(self.high_share));
                (state, self.stay(state, rng))
            }
        };
        // Both clocks have no memory: an arrival that falls beyond the state's end is drawn anew from there.
        loop {
            let unit: f64 = Exp1.sample(rng);
            let arrival_s = self.at_s + unit / self.rates.arrivals_qps[state];
            if arrival_s <= ends_s {
                self.at_s = arrival_s;
                self.state = Some((state, ends_s));
                return Some(micros(arrival_s));
            }
            self.at_s = ends_s;
            state = 1 - state;
            ends_s += self.stay(state, rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paper, table 3: mean rate, ratio, low-state and high-state rates.
    const TABLE_3: [(f64, f64, f64, f64); 6] = [
        (6.0, 3.0, 4.29, 12.86),
        (7.0, 3.0, 5.00, 15.00),
        (8.0, 3.0, 5.71, 17.14),
        (6.0, 6.0, 3.00, 18.00),
        (7.0, 6.0, 3.50, 21.00),
        (8.0, 6.0, 4.00, 24.00),
    ];

    #[test]
    fn rates_are_those_of_table_3_and_transitions_those_of_appendix_b() {
        for (rate_qps, ratio, low, high) in TABLE_3 {
            let options =
                Options { rate_qps, ratio, high_share: high_share(), correlation_s: correlation_s() };
            let rates = Rates::from(options);
            assert!((rates.arrivals_qps[0] - low).abs() < 0.005, "{rates:?}");
            assert!((rates.arrivals_qps[1] - high).abs() < 0.005, "{rates:?}");
            assert!((rates.leave_per_s[0] - 0.1).abs() < 1e-12 && (rates.leave_per_s[1] - 0.4).abs() < 1e-12);
        }
    }
}
