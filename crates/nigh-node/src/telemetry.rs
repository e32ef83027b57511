//! Metrics of this process, as Prometheus text or OpenMetrics.
//!
//! The crates record into the `metrics` facade. This is its only recorder; it adds what each family means, and the process's
//! own figures.

mod exposition;
mod families;
mod process;

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nigh_terms::Timestamp;
use thiserror::Error;

use self::exposition::{Exposition, Format};
pub use self::exposition::{Sample, SampledHistogram};
use self::families::HISTOGRAM_SUFFIX;
pub use self::process::ProcessUse;

/// Bounds of all histograms of seconds: 50 us to 100 s, three per decade.
const SECONDS: [f64; 20] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
    20.0, 50.0, 100.0,
];

/// Why metrics cannot be recorded.
#[derive(Debug, Error)]
#[error("metrics: {0}")]
pub struct TelemetryError(String);

/// The metrics. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry(PrometheusHandle);

/// The facade takes one recorder per process.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// All metrics, as a client gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsText {
    /// The value of the answer's `Content-Type`.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

/// Records when the certificate `name` of this node ends.
pub fn set_certificate_expiry(name: &str, ends: Timestamp) {
    metrics::gauge!("nigh_certificate_expiry_timestamp_seconds", "name" => name.to_owned())
        .set(ends.millis() as f64 / 1e3);
}

impl Telemetry {
    /// Starts to record. A second call in one process shares the metrics of the first.
    ///
    /// # Errors
    /// If another recorder is installed.
    pub fn install() -> Result<Self, TelemetryError> {
        if let Some(handle) = RECORDER.get() {
            return Ok(Self(handle.clone()));
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix(HISTOGRAM_SUFFIX.to_owned()), &SECONDS)
            .map_err(|error| TelemetryError(error.to_string()))?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|error| TelemetryError(error.to_string()))?;
        Ok(Self(RECORDER.get_or_init(|| handle).clone()))
    }

    /// Folds the histograms, which keep each value in memory until then. Call this every few seconds.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }

    /// All metrics in the form that `accept` prefers: those of the crates, `samples`, and those of the process.
    #[must_use]
    pub fn render(&self, samples: &[Sample], accept: Option<&str>) -> MetricsText {
        let mut all = Exposition::of_text(&self.0.render());
        samples.iter().chain(&process::samples()).for_each(|sample| all.add(sample));
        let format = Format::accepted(accept);
        MetricsText { content_type: format.content_type(), text: all.write(format) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_are_rendered_with_the_process_behind_them() {
        let telemetry = Telemetry::install().unwrap();
        metrics::counter!("nigh_test_events_total").increment(3);
        metrics::histogram!("nigh_test_wait_duration_seconds").record(0.003);
        metrics::counter!("nigh_cold_starts_total", "reason" => "first").increment(1);
        set_certificate_expiry("door", Timestamp(1_700_000_000_500));
        let rendered = telemetry.render(&[Sample::number("nigh_test_level", 7.0)], None);
        assert_eq!(rendered.content_type, "text/plain; version=0.0.4; charset=utf-8");
        for part in [
            "nigh_test_events_total 3\n",
            "nigh_test_wait_duration_seconds_bucket{le=\"0.005\"} 1\n",
            "nigh_test_level 7\n",
            "\nprocess_resident_memory_bytes ",
            "# HELP process_threads Threads of this process\n# TYPE process_threads gauge\n",
            "# HELP nigh_cold_starts_total Sandboxes made, by why",
            "nigh_certificate_expiry_timestamp_seconds{name=\"door\"} 1700000000.5\n",
            "nigh_build_info{version=\"",
        ] {
            assert!(rendered.text.contains(part), "{part}: {}", rendered.text);
        }
        let rendered = telemetry.render(&[], Some("application/openmetrics-text; version=1.0.0"));
        assert!(rendered.content_type.starts_with("application/openmetrics-text; version=1.0.0"));
        assert!(rendered.text.ends_with("# EOF\n") && rendered.text.contains("# TYPE nigh_cold_starts counter\n"));
    }
}
