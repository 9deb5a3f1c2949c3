//! Recorded arrivals (Azure, Mooncake, exported decisions, a list of seconds), scaled in time.

use rand::RngCore;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Arrivals, Files, KIND, parse};
use crate::lab::{LabError, options, trace};

/// The registered name.
pub(super) const NAME: &str = "trace";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The trace.
    file: String,
    /// Mean arrivals a second that the whole trace is scaled to.
    #[serde(default)]
    rate_qps: Option<f64>,
    /// How many times faster than recorded it is played; with neither, as recorded.
    #[serde(default)]
    speed: Option<f64>,
    /// Whether it begins anew at its end.
    #[serde(default, rename = "loop")]
    again: bool,
}

struct Trace {
    times_us: Vec<u64>,
    next: usize,
    /// Recorded time from a first request to the one that would begin the next round.
    period_us: f64,
    round: f64,
    speed: f64,
    again: bool,
}

/// Makes the process.
pub(super) fn build(options: &Map<String, Value>, files: &Files) -> Result<Box<dyn Arrivals>, LabError> {
    let Options { file, rate_qps, speed, again } = parse(NAME, options)?;
    let times_us: Vec<u64> = trace::read(files, &file)?.into_iter().map(|row| row.at_us).collect();
    let span_us = times_us.last().copied().unwrap_or_default() as f64;
    if (again || rate_qps.is_some()) && span_us <= 0.0 {
        let what = String::from("has no two requests at different times, so it has no rate and no period");
        return Err(LabError::Data { file, what });
    }
    // One mean gap follows the last request.
    let count = times_us.len() as f64;
    let period_us = span_us * count / (count - 1.0).max(1.0);
    let speed = match (rate_qps, speed) {
        (Some(_), Some(_)) => {
            return Err(options::refused(KIND, NAME, "`rate_qps` and `speed` are given; one decides"));
        }
        (Some(rate), None) => options::positive(KIND, NAME, "rate_qps", rate)? * period_us / 1e6 / count,
        (None, Some(speed)) => options::positive(KIND, NAME, "speed", speed)?,
        (None, None) => 1.0,
    };
    Ok(Box::new(Trace { times_us, next: 0, period_us, round: 0.0, speed, again }))
}

impl Arrivals for Trace {
    fn next_us(&mut self, _rng: &mut dyn RngCore) -> Option<u64> {
        if self.next == self.times_us.len() && self.again {
            self.next = 0;
            self.round += 1.0;
        }
        let recorded_us = *self.times_us.get(self.next)? as f64 + self.round * self.period_us;
        self.next += 1;
        Some((recorded_us / self.speed) as u64)
    }
}
