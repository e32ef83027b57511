//! The simulated caches against two simulators that others wrote, on streams of real programs, miss for miss.
//!
//! cachegrind counts a program's misses at each number of ways; lackey, of the same tool suite, gives the program's
//! accesses, which go through the caches here. pycachesim then gets the lines that reach the last level. Both are run,
//! never linked. Where one is not installed its test says so and passes.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test runs programs and ends by panicking"
)]

mod program;
#[path = "../../../../tests/skipped.rs"]
mod skipped;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nigh_sim::llc::{
    AddressSpace, LINE_BYTES, LlcGeometry, PAGE_LINES, PagedLine, PhysicalLine, PrivateCache, ReplacementPolicy,
    StackDistances, WayPartitionedCache,
};
use nigh_terms::{ClosId, WayMask, Ways};
use program::{Kind, Recording, Reference};
use skipped::skip;

/// Sets of the last level; one more way adds 4 KiB.
const SETS: u32 = 64;
/// The 4210R has as many.
const WAYS: Ways = Ways(11);
/// First level, instructions and data each: bytes and ways.
const FIRST_LEVEL: (u64, Ways) = (1024, Ways(2));

/// What cachegrind counts for instructions, reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    references: [u64; 3],
    first_level_misses: [u64; 3],
    last_level_misses: [u64; 3],
}

/// Frames for virtual lines whose low bits stay, as a cache indexed by virtual addresses needs them.
struct VirtualIndex {
    pages: HashMap<u64, u32>,
    space: AddressSpace,
}

impl VirtualIndex {
    fn new(lines: impl Iterator<Item = u64>) -> Self {
        let (mut pages, mut order) = (HashMap::new(), Vec::new());
        for line in lines {
            let page = line / u64::from(PAGE_LINES);
            pages.entry(page).or_insert_with(|| {
                order.push(page);
                order.len() as u32 - 1
            });
        }
        Self { pages, space: AddressSpace::coloured(&order, 6).unwrap() }
    }

    fn physical(&self, line: u64) -> PhysicalLine {
        let page = self.pages[&(line / u64::from(PAGE_LINES))];
        self.space.physical(PagedLine::new(page, (line % u64::from(PAGE_LINES)) as u32))
    }
}

/// The references that miss the first level, each with the lines it asks the last level for.
///
/// A reference across a line border is one reference to both lines: it misses when either does, and it asks the last
/// level for both then, as cachegrind does.
fn first_level(references: &[Reference]) -> (Counts, Vec<(Kind, Vec<u64>)>) {
    let cache = || PrivateCache::new(FIRST_LEVEL.0, FIRST_LEVEL.1).unwrap();
    let (mut instructions, mut data) = (cache(), cache());
    let (mut counts, mut missed) = (Counts::default(), Vec::new());
    for reference in references {
        let cache = if reference.kind == Kind::Instruction { &mut instructions } else { &mut data };
        let lines: Vec<u64> = reference.lines().collect();
        let hits = lines.iter().filter(|&&line| cache.access(line)).count();
        counts.references[reference.kind as usize] += 1;
        if hits < lines.len() {
            counts.first_level_misses[reference.kind as usize] += 1;
            missed.push((reference.kind, lines));
        }
    }
    (counts, missed)
}

/// Last-level misses at 1, 2, ... ways, from one pass.
fn by_stack_distance(missed: &[(Kind, Vec<u64>)], index: &VirtualIndex, first: Counts) -> Vec<Counts> {
    let mut distances = StackDistances::new(LlcGeometry::new(1, SETS, WAYS).unwrap());
    let mut counts = vec![first; usize::from(WAYS.0)];
    for (kind, lines) in missed {
        let needs = lines.iter().map(|&line| distances.access(index.physical(line)).map_or(WAYS.0 + 1, |ways| ways.0));
        // With fewer ways than the needier of its lines the reference misses.
        let needs = usize::from(needs.max().unwrap());
        for count in &mut counts[..needs - 1] {
            count.last_level_misses[*kind as usize] += 1;
        }
    }
    counts
}

/// Last-level misses in `ways` ways of the eleven, the highest ones, by access.
fn by_partition(missed: &[(Kind, Vec<u64>)], index: &VirtualIndex, first: Counts, ways: Ways) -> Counts {
    let geometry = LlcGeometry::new(1, SETS, WAYS).unwrap();
    let mut cache = WayPartitionedCache::new(geometry, ReplacementPolicy::Lru);
    cache.set_mask(ClosId(5), WayMask::contiguous(WAYS.0 - ways.0, ways)).unwrap();
    let mut counts = first;
    for (kind, lines) in missed {
        let hits = lines.iter().filter(|&&line| cache.access(ClosId(5), index.physical(line)).is_hit()).count();
        counts.last_level_misses[*kind as usize] += u64::from(hits < lines.len());
    }
    counts
}

fn cachegrind(recording: &Recording, ways: Ways) -> Counts {
    let first = format!("{},{},64", FIRST_LEVEL.0, FIRST_LEVEL.1);
    let (out, last) = (recording.scratch().join("cachegrind.out"), u64::from(SETS) * u64::from(ways.0) * LINE_BYTES);
    recording.run(&[
        "--tool=cachegrind",
        "--cache-sim=yes",
        "--quiet",
        &format!("--cachegrind-out-file={}", out.display()),
        &format!("--I1={first}"),
        &format!("--D1={first}"),
        &format!("--LL={last},{ways},64"),
    ]);
    let text = std::fs::read_to_string(out).unwrap();
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(line("events:"), "Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw");
    let figures: Vec<u64> = line("summary:").split(' ').map(|figure| figure.parse().unwrap()).collect();
    let column = |offset| [0, 3, 6].map(|first: usize| figures[first + offset]);
    Counts { references: column(0), first_level_misses: column(1), last_level_misses: column(2) }
}

/// Holds both ways to count the last level's misses to cachegrind's at each of `ways`; gives the misses at 1, 2, ...
/// ways.
fn compare_with_cachegrind(recording: &Recording, ways: impl Iterator<Item = u8>) -> Vec<u64> {
    let (first, missed) = first_level(&recording.references);
    let index = VirtualIndex::new(missed.iter().flat_map(|(_, lines)| lines).copied());
    let curve = by_stack_distance(&missed, &index, first);
    assert!(missed.iter().any(|(_, lines)| lines.len() == 2), "some reference crosses a line border");
    for ways in ways.map(Ways) {
        let expected = cachegrind(recording, ways);
        assert_eq!(curve[usize::from(ways.0) - 1], expected, "one pass, {ways} ways");
        assert_eq!(by_partition(&missed, &index, first, ways), expected, "simulated, {ways} ways");
    }
    curve.iter().map(|counts| counts.last_level_misses.iter().sum()).collect()
}

#[test]
fn every_miss_equals_cachegrinds_at_each_number_of_ways() {
    let Some(walk) = Recording::of_walk("every_miss_equals_cachegrinds_at_each_number_of_ways") else { return };
    let misses = compare_with_cachegrind(&walk, 1..=WAYS.0);
    assert!(misses[0] > misses[3] && misses[3] > misses[10], "the program needs ways: {misses:?}");
}

#[test]
fn every_miss_of_an_installed_program_equals_cachegrinds() {
    let test = "every_miss_of_an_installed_program_equals_cachegrinds";
    let Some(recording) = Recording::of_installed(test, "/bin/true") else { return };
    compare_with_cachegrind(&recording, [1, 5, 11].into_iter());
}

/// Loads of line numbers, one a line on standard input, in an LRU cache of sets, ways; its misses on standard output.
const PYCACHESIM: &str = "
import sys
from cachesim import Cache, CacheSimulator, MainMemory
lines = [int(line) for line in sys.stdin]
for ways in range(1, int(sys.argv[2]) + 1):
    memory, cache = MainMemory(), Cache('LLC', int(sys.argv[1]), ways, 64, 'LRU')
    memory.load_to(cache)
    memory.store_from(cache)
    simulator = CacheSimulator(cache, memory)
    for line in lines:
        simulator.load(line * 64, 1)
    print(cache.stats()['MISS_count'])
";

/// The interpreter that has pycachesim, as the tools' installer makes it.
fn pycachesim_python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/cachesim/bin/python")
}

#[test]
fn every_miss_equals_pycachesims_at_each_number_of_ways() {
    let name = "every_miss_equals_pycachesims_at_each_number_of_ways";
    let python = pycachesim_python();
    let installed = Command::new(&python).args(["-c", "import cachesim"]).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        skip(
            name,
            format_args!("no pycachesim in {}; scripts/install-cache-simulators.sh installs it", python.display()),
        );
        return;
    }
    let Some(walk) = Recording::of_walk(name) else { return };
    let (_, missed) = first_level(&walk.references);
    let lines: Vec<u64> = missed.into_iter().flat_map(|(_, lines)| lines).collect();
    let mut run = Command::new(python)
        .args(["-c", PYCACHESIM, &SETS.to_string(), &WAYS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    run.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    let expected: Vec<f64> =
        String::from_utf8(output.stdout).unwrap().lines().map(|misses| misses.parse().unwrap()).collect();

    let index = VirtualIndex::new(lines.iter().copied());
    let mut distances = StackDistances::new(LlcGeometry::new(1, SETS, WAYS).unwrap());
    for &line in &lines {
        distances.access(index.physical(line));
    }
    let curve = distances.curve();
    assert_eq!((1..=WAYS.0).map(|ways| curve.misses(Ways(ways))).collect::<Vec<_>>(), expected);
}
