use super::*;
use crate::latency_histogram::Percentile;

const FIRST: &str = "\
# HELP rpc_seconds How long a call took.
# TYPE rpc_seconds histogram
rpc_seconds_bucket{op=\"get\",le=\"0.00005\"} 100
rpc_seconds_bucket{op=\"get\",le=\"0.00007\"} 150
rpc_seconds_bucket{op=\"get\",le=\"+Inf\"} 150
rpc_seconds_bucket{op=\"put\",le=\"5e-05\"} 1
rpc_seconds_bucket{op=\"put\",le=\"7e-05\"} 2
rpc_seconds_bucket{op=\"put\",le=\"+Inf\"} 2 1700000000000
rpc_seconds_sum 0.01
up 1
";

fn choice(text: &str) -> HistogramChoice {
    HistogramChoice::parse(text).unwrap()
}

fn only(text: &str) -> Result<ExportedHistogram, ExportError> {
    ExportedHistogram::parse(text, &HistogramChoice::default())
}

fn percentile(percent: f64) -> Percentile {
    Percentile::try_from(percent).unwrap()
}

#[test]
fn two_scrapes_give_the_latencies_between_them() {
    let first = only(FIRST).unwrap();
    assert_eq!(first.since(&first).unwrap().total(), 0);
    let later = FIRST.replace("} 100", "} 190").replace("} 150", "} 245").replace("+Inf\"} 245", "+Inf\"} 250");
    let window = only(&later).unwrap().since(&first).unwrap();
    assert_eq!(window.total(), 100);
    let micros = |percent| window.quantile(percentile(percent)).unwrap().as_nanos() as f64 / 1e3;
    assert!((48.0..=50.0).contains(&micros(90.0)), "{}", micros(90.0));
    assert!((67.5..=70.0).contains(&micros(95.0)), "never above the bound: {}", micros(95.0));
    assert!(micros(99.0) > 1e9, "beyond the last bound there is no saying how long");
    assert_eq!(first.longest_bound(), Some(Duration::from_micros(70)));
}

#[test]
fn labels_choose_among_samples() {
    let put = ExportedHistogram::parse(FIRST, &choice("rpc_seconds{op=\"put\"}")).unwrap();
    let nothing = ExportedHistogram { counts: put.counts.iter().map(|(bound, _)| (*bound, 0)).collect(), ..put };
    let put = ExportedHistogram::parse(FIRST, &choice("rpc_seconds_bucket{op=\"put\"}")).unwrap();
    assert_eq!(put.since(&nothing).unwrap().total(), 2);
    assert_eq!(only(FIRST).unwrap().since(&nothing).unwrap().total(), 152, "without labels all are added up");
    let refused = ExportedHistogram::parse(FIRST, &choice("rpc_seconds{op=\"scan\"}")).unwrap_err();
    assert!(matches!(refused, ExportError::NoHistogram { .. }));
    for wrong in ["", "{op=\"put\"}", "rpc_seconds{op}", "rpc_seconds{} 7"] {
        assert!(matches!(HistogramChoice::parse(wrong), Err(ExportError::BadChoice { .. })), "{wrong}");
    }
}

#[test]
fn a_restart_and_other_bounds_lose_the_window() {
    let first = only(FIRST).unwrap();
    let anew = only(&FIRST.replace("} 100", "} 3").replace("} 150", "} 4")).unwrap();
    assert!(matches!(anew.since(&first), Err(ExportError::Restarted { .. })));
    let other = only(&FIRST.replace("0.00007", "0.00008").replace("7e-05", "8e-05")).unwrap();
    assert!(matches!(other.since(&first), Err(ExportError::OtherBounds { .. })));
}

#[test]
fn the_unit_is_in_the_name() {
    let millis = "x_ms_bucket{le=\"2\"} 1\nx_ms_bucket{le=\"+Inf\"} 1\n";
    assert_eq!(only(millis).unwrap().longest_bound(), Some(Duration::from_millis(2)));
    let nobody_knows = millis.replace("x_ms", "x");
    assert!(matches!(only(&nobody_knows), Err(ExportError::NoUnit { .. })));
}

#[test]
fn text_that_is_no_histogram_is_refused_with_its_line() {
    for (text, line) in [
        ("up 1\nx_ms_bucket{le=\"1\" 1\n", 2),
        ("x_ms_bucket{le=\"1\"} many\n", 1),
        ("x_ms_bucket{le=\"one\"} 1\n", 1),
        ("x_ms_bucket{le=\"1} 1\n", 1),
        ("x_ms_bucket{le=\"1\"} -1\n", 1),
        ("7up 1\n", 1),
        ("<html>", 1),
    ] {
        let refused = only(text).unwrap_err();
        assert!(matches!(refused, ExportError::BadLine { line: at, .. } if at == line), "{text}: {refused}");
    }
    let bucket = |le: &str, count: u8| format!("x_ms_bucket{{le=\"{le}\"}} {count}\n");
    assert!(matches!(only(&bucket("1", 1)), Err(ExportError::NoInfinity { .. })));
    let falling = bucket("1", 2) + &bucket("+Inf", 1);
    assert!(matches!(only(&falling), Err(ExportError::NotCumulative { .. })));
    let several = FIRST.to_owned() + &bucket("+Inf", 1);
    assert!(only(&several).unwrap_err().to_string().contains("rpc_seconds, x_ms"));
    assert!(only("up 1\n").unwrap_err().to_string().contains("it has: none"));
}

#[test]
fn escapes_timestamps_and_exemplars_are_read() {
    let text =
        "x_ms_bucket{path=\"a\\\"b\\\\,}\\n\",le=\"1\",} 3 # {trace=\"1\"} 0.5\nx_ms_bucket {le=\"+Inf\"} 4 17\n";
    let one = ExportedHistogram::parse(text, &HistogramChoice::default()).unwrap();
    assert_eq!(one.counts, [(1_000_000, 3), (INFINITY, 4)]);
    let labelled = HistogramChoice { name: None, labels: vec![("path".to_owned(), "a\"b\\,}\n".to_owned())] };
    assert!(matches!(ExportedHistogram::parse(text, &labelled), Err(ExportError::NoInfinity { .. })));
}
