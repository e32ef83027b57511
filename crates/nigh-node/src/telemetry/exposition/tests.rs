//! Tests of the text of metrics.

use super::*;

/// What Prometheus 3 sends.
const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
    application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
    text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

#[test]
fn a_client_gets_open_metrics_only_if_it_prefers_that() {
    for (accept, format) in [
        (None, Format::Text),
        (Some("*/*"), Format::Text),
        (Some("text/plain"), Format::Text),
        (Some(PROMETHEUS), Format::OpenMetrics),
        (Some("application/openmetrics-text"), Format::OpenMetrics),
        (Some("application/openmetrics-text; version=\"1.0.0\"; charset=utf-8"), Format::OpenMetrics),
        (Some("application/openmetrics-text; version=2.0.0"), Format::Text),
        (Some("application/openmetrics-text;q=0, text/plain"), Format::Text),
        (Some("application/openmetrics-text;q=0.5, text/plain;q=0.5"), Format::Text),
        (Some(";;,=,q=x"), Format::Text),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept:?}");
    }
}

fn families() -> Exposition {
    let text = "# HELP nigh_init other words\n# TYPE nigh_memory_grown_total counter\nnigh_memory_grown_total 3\n\n\
        # TYPE nigh_journal_commit_duration_seconds histogram\n\
        nigh_journal_commit_duration_seconds_bucket{le=\"0.00005\"} 1\n\
        nigh_journal_commit_duration_seconds_bucket{le=\"1\"} 2\n\
        nigh_journal_commit_duration_seconds_bucket{le=\"+Inf\"} 2\n\
        nigh_journal_commit_duration_seconds_sum 0.25\nnigh_journal_commit_duration_seconds_count 2\n";
    let mut families = Exposition::of_text(text);
    families.add(&Sample::number("nigh_build_info", 1.0).with("version", "0.1 \"x\"\\"));
    families.add(&Sample::number("process_cpu_seconds_total", 1.5));
    families
}

#[test]
fn prometheus_text_describes_each_family_once() {
    let text = families().write(Format::Text);
    assert!(text.starts_with("# HELP nigh_build_info "), "{text}");
    assert!(
        text.contains("# TYPE nigh_build_info gauge\nnigh_build_info{version=\"0.1 \\\"x\\\"\\\\\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("# TYPE nigh_memory_grown_total counter\nnigh_memory_grown_total 3\n"), "{text}");
    assert!(text.contains("_bucket{le=\"0.00005\"} 1\n") && !text.contains("EOF") && !text.contains("UNIT"), "{text}");
    assert!(!text.contains("\n\n") && !text.contains("other words"), "{text}");
}

#[test]
fn open_metrics_names_families_without_their_suffix_and_ends() {
    let text = families().write(Format::OpenMetrics);
    assert!(text.contains("# TYPE nigh_build info\nnigh_build_info{"), "{text}");
    assert!(text.contains("# TYPE nigh_memory_grown counter\nnigh_memory_grown_total 3\n"), "{text}");
    assert!(text.contains("# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n"), "{text}");
    assert!(text.contains("# UNIT nigh_journal_commit_duration_seconds seconds\n"), "{text}");
    for bound in ["5e-05", "1.0", "+Inf"] {
        assert!(text.contains(&format!("_bucket{{le=\"{bound}\"}}")), "{bound}: {text}");
    }
    assert!(text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn a_histogram_has_its_buckets_then_its_totals() {
    let histogram = SampledHistogram { buckets: vec![(0.5, 1), (1.0, 3)], count: 4, sum: 7.5 };
    let lines = Sample::histogram("nigh_test_duration_seconds", histogram).with("function", "f").lines();
    assert_eq!(
        lines,
        [
            "nigh_test_duration_seconds_bucket{function=\"f\",le=\"0.5\"} 1",
            "nigh_test_duration_seconds_bucket{function=\"f\",le=\"1\"} 3",
            "nigh_test_duration_seconds_bucket{function=\"f\",le=\"+Inf\"} 4",
            "nigh_test_duration_seconds_sum{function=\"f\"} 7.5",
            "nigh_test_duration_seconds_count{function=\"f\"} 4",
        ]
    );
    assert_eq!(["5e-05", "0.0001", "100.0"], [0.000_05, 0.0001, 100.0].map(canonical));
}
