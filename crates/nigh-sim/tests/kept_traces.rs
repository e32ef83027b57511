//! The traces in data/llc-traces are what its curves.csv says.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test reads files, and ends by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use nigh_sim::llc::{AccessKind, PrivateCaches, Trace};

/// The most accesses of a trace that is decoded here: the test is to stay quick in a debug build.
const DECODED_ACCESSES_MAX: u64 = 400_000;
/// What all traces together may take in the repository.
const TOGETHER_BYTES_MAX: u64 = 20_000_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data/llc-traces")
}

struct Row {
    name: String,
    trace: String,
    numbers: Vec<u64>,
}

const NUMBERS: [&str; 7] =
    ["trace_bytes", "input_bytes", "sampling", "instructions", "whole_instructions", "l2_misses", "records"];

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(folder().join("curves.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|other| *other == name).unwrap();
    let of = |line: &[&str]| Row {
        name: line[column("name")].to_owned(),
        trace: line[column("trace")].to_owned(),
        numbers: NUMBERS.map(|name| line[column(name)].parse().unwrap()).to_vec(),
    };
    lines.map(|line| of(&line)).collect()
}

#[test]
fn the_kept_files_are_the_listed_ones_and_stay_below_their_limit() {
    let listed: BTreeSet<_> = rows().into_iter().map(|row| (row.trace, row.numbers[0])).collect();
    let kept: BTreeSet<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .filter(|(name, _)| name.ends_with(".zst"))
        .collect();
    assert_eq!(listed.into_iter().filter(|(name, _)| !name.is_empty()).collect::<BTreeSet<_>>(), kept);
    assert!(kept.iter().map(|(_, bytes)| bytes).sum::<u64>() < TOGETHER_BYTES_MAX);
}

#[test]
fn a_kept_trace_has_the_header_and_the_misses_that_are_listed() {
    let mut decoded = 0;
    let small = |row: &&Row| row.numbers[6] / row.numbers[2] <= DECODED_ACCESSES_MAX;
    for row in rows().iter().filter(|row| !row.trace.is_empty()).filter(small) {
        let trace = Trace::decode(&fs::read(folder().join(&row.trace)).unwrap()).unwrap();
        let header = &trace.header;
        let read = [
            row.numbers[0],
            header.input_bytes.bytes(),
            u64::from(header.sampling.number()),
            header.instructions,
            header.whole_instructions,
        ];
        assert_eq!(row.numbers[..5], read, "{}", row.name);
        assert!(row.name.starts_with(&header.function));
        assert_eq!(header.filter, PrivateCaches::XEON_4210R);

        let evicted = |kind| matches!(kind, AccessKind::CleanEviction | AccessKind::DirtyEviction);
        let misses = trace.accesses.iter().filter(|access| !evicted(access.kind)).count() as f64;
        let estimate = misses * f64::from(header.sampling.number());
        let listed = row.numbers[5] as f64;
        let allowed = if header.sampling.number() == 1 { 0.0 } else { 0.02 };
        assert!((estimate - listed).abs() <= allowed * listed, "{}: {estimate} for {listed}", row.name);
        // What the second level gave up is what it took in, at the end of a whole recording.
        let evictions = trace.accesses.len() as f64 - misses;
        assert!((evictions - misses).abs() <= 0.02 * misses, "{}: {evictions} of {misses}", row.name);
        decoded += 1;
    }
    assert!(decoded >= 5, "only {decoded} were small enough");
}
