//! What is asked of a point: a metric by name, as high as can be or past a bound.

use serde::Serialize;
use serde_json::Value;

use crate::lab::{Interval, LabError, Metrics};

/// Short names of metrics.
const ALIASES: [(&str, &str); 3] =
    [("cost_usd", "mean_cost_usd"), ("utility", "mean_utility"), ("score", "mean_score")];

/// A bound on a metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The metric.
    pub metric: String,
    /// Whether the bound is the least allowed; the most otherwise.
    pub at_least: bool,
    /// The bound.
    pub bound: f64,
}

/// How a metric stands to a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Met {
    /// Its whole interval meets the bound.
    Surely,
    /// Its mean does; the interval does not, or one run has none.
    OnAverage,
    /// Its mean does not.
    Not,
}

/// A metric to bring as far as can be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// The metric.
    pub metric: String,
    /// Whether more is better.
    pub maximise: bool,
}

impl Objective {
    /// Makes one, by a metric's name or short name.
    ///
    /// # Errors
    /// [`LabError::Unknown`] lists the metrics.
    pub fn new(metric: &str, maximise: bool) -> Result<Self, LabError> {
        Ok(Self { metric: resolve(metric)?, maximise })
    }

    /// Returns how good a value is; more is better.
    pub(super) fn merit(&self, value: f64) -> f64 {
        let merit = if self.maximise { value } else { -value };
        if merit.is_nan() { f64::NEG_INFINITY } else { merit }
    }
}

impl Goal {
    /// Reads `METRIC>=BOUND` or `METRIC<=BOUND`.
    ///
    /// # Errors
    /// [`LabError::Unknown`] lists the metrics, [`LabError::Invalid`] says what else is wrong.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let wrong = || LabError::Invalid {
            place: String::from("goal"),
            key: text.to_owned(),
            rule: String::from("must read METRIC>=NUMBER or METRIC<=NUMBER, such as attainment>=0.95"),
        };
        let parts = |sign: &str| text.split_once(sign).map(|(metric, bound)| (metric, bound, sign == ">="));
        let (metric, bound, at_least) = parts(">=").or_else(|| parts("<=")).ok_or_else(wrong)?;
        let bound: f64 = bound.trim().parse().map_err(|_| wrong())?;
        if !bound.is_finite() {
            return Err(wrong());
        }
        Ok(Self { metric: resolve(metric.trim())?, at_least, bound })
    }

    /// Returns how an interval over `runs` runs stands to the bound.
    #[must_use]
    pub fn judge(&self, interval: &Interval, runs: usize) -> Met {
        let worst = if self.at_least { interval.low } else { interval.high };
        match (self.shortfall(interval.mean) <= 0.0, self.shortfall(worst) <= 0.0) {
            (true, true) if runs > 1 => Met::Surely,
            (true, _) => Met::OnAverage,
            (false, _) => Met::Not,
        }
    }

    /// Returns by how much a value misses the bound, relative to it, or as it is where the bound is 0; 0 where it
    /// does not.
    #[must_use]
    pub fn shortfall(&self, value: f64) -> f64 {
        let missing = if self.at_least { self.bound - value } else { value - self.bound };
        if missing.is_nan() {
            return f64::INFINITY;
        }
        missing.max(0.0) / if self.bound == 0.0 { 1.0 } else { self.bound.abs() }
    }
}

/// Returns a metric by its name; those of distributions and shares go by a dot (`ttft_s.p95`,
/// `model_share.qwen3-8b`). Absent: the run has none.
#[must_use]
pub fn metric(metrics: &Metrics, name: &str) -> Option<f64> {
    let tree = serde_json::to_value(metrics).ok()?;
    let (head, key) = match name.split_once('.') {
        Some((head, key)) => (head, Some(key)),
        None => (name, None),
    };
    let node = tree.get(head)?;
    key.map_or(Some(node), |key| node.get(key))?.as_f64()
}

/// Returns the names of all metrics; a share's goes on with a dot and what it is of.
#[must_use]
pub fn metric_names() -> Vec<String> {
    let Ok(Value::Object(fields)) = serde_json::to_value(Metrics::default()) else { return Vec::new() };
    let mut names = Vec::new();
    for (name, value) in &fields {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                names.extend(inner.keys().map(|key| format!("{name}.{key}")));
            }
            Value::Object(_) => names.push(format!("{name}.NAME")),
            _ => names.push(name.clone()),
        }
    }
    names
}

/// Returns the full name of a metric.
fn resolve(name: &str) -> Result<String, LabError> {
    let full = ALIASES.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full);
    let names = metric_names();
    let of_share = full.split_once('.').map(|(head, _)| format!("{head}.NAME"));
    if names.iter().any(|known| known == full || Some(known) == of_share.as_ref()) {
        return Ok(full.to_owned());
    }
    Err(LabError::Unknown { kind: "metric", name: name.to_owned(), known: names.join(", ") })
}
