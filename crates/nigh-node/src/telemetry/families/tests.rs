//! Tests of the families of metrics; the reference page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::*;

/// The variable that has the page written.
const WRITE: &str = "NIGH_TEST_WRITE_REFERENCE";

fn page() -> String {
    let mut page = "# Metrics\n\n<!-- Generated from crates/nigh-node/src/telemetry/families.rs: \
                    NIGH_TEST_WRITE_REFERENCE=1 cargo test -p nigh-node reference -->\n\n\
                    `nigh metrics` prints Prometheus text; `GET /metrics` also OpenMetrics, where `Accept` prefers it; \
                    `nigh --json metrics` prints a list of `{\"name\", \"labels\", \
                    \"value\"}`. Histograms have bounds from 50 µs to 100 s.\n"
        .to_owned();
    for (subject, families) in SUBJECTS {
        let _ = write!(page, "\n## {subject}\n| metric | kind | meaning |\n|---|---|---|\n");
        for (name, meaning) in families {
            let _ = writeln!(page, "| `{name}` | {} | {meaning} |", Kind::of(name).as_str());
        }
    }
    page
}

/// The names that the macros of `metrics` are given in the sources of all crates, with the macro.
fn recorded(folder: &Path, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            recorded(&path, found);
        } else if path.extension() == Some("rs".as_ref()) {
            let text = std::fs::read_to_string(&path).unwrap();
            let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            for kind in [Kind::Counter, Kind::Gauge, Kind::Histogram] {
                for rest in code.split(&format!("{}!(", kind.as_str())).skip(1) {
                    let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                    if let Some(name) = name.filter(|name| !name.starts_with("nigh_test_")) {
                        found.entry(name.to_owned()).or_default().insert(kind.as_str());
                    }
                }
            }
        }
    }
}

#[test]
fn the_reference_of_metrics_is_what_they_say_of_themselves() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page(), "{WRITE}=1 writes the page anew");
}

#[test]
fn every_family_that_is_recorded_has_a_meaning_and_the_kind_that_its_name_says() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        recorded(&entry.unwrap().path().join("src"), &mut found);
    }
    assert!(found.len() > 70, "the sources are not read: {found:?}");
    for (name, kinds) in &found {
        assert!(meaning(name).is_some(), "{name} has no meaning here");
        assert_eq!(kinds, &BTreeSet::from([Kind::of(name).as_str()]), "{name}");
    }
}

#[test]
fn every_family_is_told_once() {
    let names: BTreeSet<&str> = families().map(|(name, _)| name).collect();
    assert_eq!(names.len(), families().count());
    for (name, kind) in [
        ("nigh_writeback_oldest_age_seconds", Kind::Gauge),
        ("process_cpu_seconds_total", Kind::Counter),
        ("nigh_journal_commit_duration_seconds", Kind::Histogram),
        ("nigh_build_info", Kind::Info),
    ] {
        assert_eq!(Kind::of(name), kind, "{name}");
    }
}

#[test]
fn what_the_node_reads_when_it_is_asked_has_a_meaning_too() {
    let sources = [
        include_str!("../../node/meters.rs"),
        include_str!("../../llc/meters.rs"),
        include_str!("../../writes.rs"),
        include_str!("../process.rs"),
    ];
    let mut seen = 0;
    for source in sources {
        for (call, is_histogram) in [("Sample::number(\"", false), ("Sample::histogram(\"", true)] {
            for name in source.split(call).skip(1).filter_map(|rest| rest.split('"').next()) {
                seen += 1;
                assert!(meaning(name).is_some(), "{name} has no meaning here");
                assert_eq!(Kind::of(name) == Kind::Histogram, is_histogram, "{name}");
            }
        }
    }
    assert!(seen > 25, "the sources are not read");
}

/// OpenMetrics: a family's name and its samples' names are those of no other family, and a meaning needs no escape.
#[test]
fn no_name_means_two_families_in_open_metrics() {
    let mut taken = BTreeMap::new();
    for (name, meaning) in families() {
        let kind = Kind::of(name);
        let family = kind.family(name);
        let suffixes: &[&str] = match kind {
            Kind::Counter => &["", "_total", "_created"],
            Kind::Histogram => &["", "_bucket", "_sum", "_count", "_created"],
            Kind::Info => &["", "_info"],
            Kind::Gauge => &[""],
        };
        for suffix in suffixes {
            let before = taken.insert(format!("{family}{suffix}"), name);
            assert_eq!(before, None, "{name} and {before:?} share {family}{suffix}");
        }
        assert!(!meaning.contains(['"', '\\', '\n']), "{name}: {meaning}");
    }
}
