//! The metrics recorder behind `/metrics`: every metric of `names`, described, with its own buckets.

use std::{sync::OnceLock, time::Duration};

use metrics::Recorder as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::{
    TelemetryError,
    names::{Kind, METRICS, Metric, Unit},
};

static INSTALLED: OnceLock<Exposition> = OnceLock::new();

/// How often samples are folded into their buckets, so that they do not pile up between scrapes.
pub const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// What `/metrics` shows of one recorder.
#[derive(Clone, Debug)]
pub struct Exposition(PrometheusHandle);

impl Exposition {
    /// Renders the present values in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Folds pending samples into their buckets; to be called every [`UPKEEP_PERIOD`].
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

/// Installs the process's recorder, the first time; later calls return the same exposition.
///
/// # Errors
/// [`TelemetryError::Recorder`] where other code installed a recorder of its own, or for bad buckets.
pub fn install() -> Result<Exposition, TelemetryError> {
    if let Some(installed) = INSTALLED.get() {
        return Ok(installed.clone());
    }
    let (recorder, exposition) = recorder()?;
    if metrics::set_global_recorder(recorder).is_ok() {
        return Ok(INSTALLED.get_or_init(|| exposition).clone());
    }
    // Two threads may race here: the loser waits for the winner's exposition.
    INSTALLED.get().cloned().ok_or(TelemetryError::Recorder { why: "another recorder is installed".into() })
}

/// Builds a recorder that is not installed, with its exposition.
///
/// # Errors
/// [`TelemetryError::Recorder`] for bad buckets.
pub fn recorder() -> Result<(PrometheusRecorder, Exposition), TelemetryError> {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS.iter().filter(|metric| metric.kind == Kind::Histogram) {
        builder = builder
            .set_buckets_for_metric(Matcher::Full(metric.name.into()), metric.buckets)
            .map_err(|error| TelemetryError::Recorder { why: format!("{}: {error}", metric.name) })?;
    }
    let recorder = builder.build_recorder();
    METRICS.iter().for_each(|metric| describe(&recorder, metric));
    let exposition = Exposition(recorder.handle());
    Ok((recorder, exposition))
}

fn describe(recorder: &PrometheusRecorder, metric: &Metric) {
    let unit = match metric.unit {
        Unit::Seconds => Some(metrics::Unit::Seconds),
        Unit::Tokens | Unit::Count => Some(metrics::Unit::Count),
        Unit::Usd | Unit::Ratio => None,
    };
    let (name, help) = (metric.name.into(), metric.help.into());
    match metric.kind {
        Kind::Counter => recorder.describe_counter(name, unit, help),
        Kind::Gauge => recorder.describe_gauge(name, unit, help),
        Kind::Histogram => recorder.describe_histogram(name, unit, help),
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, histogram};

    use super::*;
    use crate::telemetry::names::{self, label};

    #[test]
    fn values_come_out_with_help_labels_and_buckets() {
        let (recorder, exposition) = recorder().unwrap();
        metrics::with_local_recorder(&recorder, || {
            counter!(names::STORE_DROPPED.name, label::CAUSE => "full").increment(3);
            gauge!(names::ON_TIME_UTILITY.name, label::MODEL => "qwen3-8b").increment(0.5);
            gauge!(names::ON_TIME_UTILITY.name, label::MODEL => "qwen3-8b").increment(-0.75);
            let ttft = histogram!(names::TTFT.name, label::MODEL => "qwen3-8b", label::INSTANCE => "a");
            ttft.record(0.09);
            ttft.record(31.0);
        });
        let text = exposition.render();
        for line in [
            r#"bear_store_dropped_total{cause="full"} 3"#,
            r#"bear_on_time_utility_sum{model="qwen3-8b"} -0.25"#,
            r#"bear_ttft_seconds_bucket{model="qwen3-8b",instance="a",le="0.075"} 0"#,
            r#"bear_ttft_seconds_bucket{model="qwen3-8b",instance="a",le="0.1"} 1"#,
            r#"bear_ttft_seconds_bucket{model="qwen3-8b",instance="a",le="+Inf"} 2"#,
            "# TYPE bear_ttft_seconds histogram",
        ] {
            assert!(text.contains(line), "missing {line} in\n{text}");
        }
        assert!(
            text.contains(&format!("# HELP bear_store_dropped_total {}", names::STORE_DROPPED.help)),
            "{text}"
        );
    }

    #[test]
    fn installing_twice_gives_the_same_exposition() {
        let first = install().unwrap();
        let second = install().unwrap();
        gauge!(names::PREDICTOR_INFO.name, label::VERSION => "install-test").set(1.0);
        let line = r#"bear_predictor_info{version="install-test"} 1"#;
        assert!(first.render().contains(line) && second.render().contains(line));
    }
}
