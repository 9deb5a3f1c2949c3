//! What can be turned, and how far: positions in `[0,1]` on a scale that is even in ratios.

use serde::Serialize;
use serde_json::{Number, Value};

use super::Plan;
use crate::lab::{LabError, RouterChoice, Scenario};

/// A scale that begins at 0 grows by this factor over its length, about.
const GROWTH: f64 = 1000.0;
/// Significant digits of a tried value: what is simulated is what is printed.
const DIGITS: i32 = 4;

/// 2⁵³: whole numbers up to it are exact as floats.
const MOST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Something to turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Knob {
    /// λ of eq. 4 in the router's weighing.
    Lambda,
    /// δ of eq. 7.
    Delta,
    /// An option of the policy.
    Option(String),
}

/// A knob with its ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Range {
    /// The knob.
    pub knob: Knob,
    /// Least value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
    /// Whether values are whole numbers.
    pub whole: bool,
}

impl Range {
    /// Reads `KEY=LOW..HIGH`; `LOW..HIGH:int` for whole numbers. The key is `lambda_per_usd`, `delta_per_s` or the
    /// name of an option of the policy.
    ///
    /// # Errors
    /// [`LabError::Invalid`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let wrong = |rule: &str| LabError::Invalid {
            place: String::from("range"),
            key: text.to_owned(),
            rule: rule.to_owned(),
        };
        let form =
            "must read KEY=LOW..HIGH, such as lambda_per_usd=50..2000 (LOW..HIGH:int for whole numbers)";
        let (key, ends) = text.split_once('=').ok_or_else(|| wrong(form))?;
        let (ends, whole) = ends.strip_suffix(":int").map_or((ends, false), |ends| (ends, true));
        let (low, high) = ends.split_once("..").ok_or_else(|| wrong(form))?;
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        let (low, high) = number(low).zip(number(high)).ok_or_else(|| wrong(form))?;
        let countable = |end: f64| end.fract() == 0.0 && end.abs() <= MOST_WHOLE;
        if whole && !(countable(low) && countable(high)) {
            return Err(wrong(
                "must begin and end at whole numbers, none beyond 2^53, where it ends in `:int`",
            ));
        }
        if low > high {
            return Err(wrong("must not end before it begins"));
        }
        let knob = match key.trim() {
            "" => return Err(wrong(form)),
            "lambda_per_usd" => Knob::Lambda,
            "delta_per_s" => Knob::Delta,
            option => Knob::Option(option.strip_prefix("options.").unwrap_or(option).to_owned()),
        };
        if low < 0.0 && !matches!(knob, Knob::Option(_)) {
            return Err(wrong("must begin at 0 or more"));
        }
        Ok(Self { knob, low, high, whole })
    }

    /// Returns λ from 50 to 2000 per USD: the span over which the paper's models change places.
    #[must_use]
    pub const fn default_lambda() -> Self {
        Self { knob: Knob::Lambda, low: 50.0, high: 2000.0, whole: false }
    }

    /// Returns δ from 0 to 5 per second.
    #[must_use]
    pub const fn default_delta() -> Self {
        Self { knob: Knob::Delta, low: 0.0, high: 5.0, whole: false }
    }

    /// Returns the knob's key.
    #[must_use]
    pub fn key(&self) -> &str {
        match &self.knob {
            Knob::Lambda => "lambda_per_usd",
            Knob::Delta => "delta_per_s",
            Knob::Option(name) => name,
        }
    }

    /// Returns the value at position `u` in `[0,1]`: even in ratios from a positive end, nearly so from 0,
    /// linear from a negative one.
    pub(super) fn value(&self, u: f64) -> f64 {
        let u = u.clamp(0.0, 1.0);
        let value = match self.low {
            low if low > 0.0 => low * (self.high / low).powf(u),
            0.0 => self.high * (GROWTH.powf(u) - 1.0) / (GROWTH - 1.0),
            low => low + u * (self.high - low),
        };
        let value = if self.whole { value.round() } else { rounded(value) };
        value.clamp(self.low, self.high)
    }

    /// Returns the knob's present value in a scenario; absent: the option is not set, or no number.
    pub(super) fn present(&self, scenario: &Scenario, router: &RouterChoice) -> Option<f64> {
        match &self.knob {
            Knob::Lambda => Some(router.lambda_per_usd.unwrap_or(scenario.lambda_per_usd)),
            Knob::Delta => Some(router.delta_per_s.unwrap_or(scenario.delta_per_s)),
            Knob::Option(name) => router.policy.options.get(name)?.as_f64(),
        }
    }

    fn turn(&self, router: &mut RouterChoice, value: f64) {
        match &self.knob {
            Knob::Lambda => router.lambda_per_usd = Some(value),
            Knob::Delta => router.delta_per_s = Some(value),
            Knob::Option(name) => {
                let whole = (self.whole).then(|| Value::from(value as i64));
                let number = || Number::from_f64(value).map_or(Value::Null, Value::Number);
                router.policy.options.insert(name.clone(), whole.unwrap_or_else(number));
            }
        }
    }
}

/// Returns the scenario with one router, its knobs turned to `values`.
#[must_use]
pub fn turned(scenario: &Scenario, plan: &Plan, values: &[f64]) -> Scenario {
    let mut router = scenario.routers[plan.router].clone();
    router.sweep = None;
    for (range, &value) in plan.ranges.iter().zip(values) {
        range.turn(&mut router, value);
    }
    Scenario { routers: vec![router], axes: Default::default(), keep_requests: 0, ..scenario.clone() }
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = DIGITS - 1 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", usize::try_from(digits).unwrap_or(0));
    text.parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_even_in_ratios() {
        let range = |text: &str| Range::parse(text).unwrap();
        let lambda = range("lambda_per_usd=50..5000");
        assert_eq!([0.0, 0.5, 1.0].map(|u| lambda.value(u)), [50.0, 500.0, 5000.0]);
        let delta = range("delta_per_s=0..5");
        // 5·(1000^0.5 − 1)/999 = 5·30.62/999.
        assert_eq!([0.0, 0.5, 1.0].map(|u| delta.value(u)), [0.0, 0.1533, 5.0]);
        let option = range("options.bias=-2..2:int");
        assert_eq!((option.key(), [0.0, 0.6, 1.0].map(|u| option.value(u))), ("bias", [-2.0, 0.0, 2.0]));
        assert_eq!(range("k=3..3").value(0.7), 3.0);
    }

    #[test]
    fn a_range_that_makes_no_sense_is_refused() {
        for text in [
            "lambda_per_usd",
            "lambda_per_usd=5",
            "k=2..1",
            "k=a..b",
            "=1..2",
            "delta_per_s=-1..2",
            "k=0..inf",
            "k=0.5..3:int",
            "k=1..2.5:int",
            "k=0..1e300:int",
            "k=0..3:integer",
        ] {
            assert!(Range::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!([312.345_6, 0.001_234_56, 98_765.4, 0.0].map(rounded), [312.3, 0.001_235, 98_765.0, 0.0]);
    }
}
