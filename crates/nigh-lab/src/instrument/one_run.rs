//! The one-run profile: a function's need from one recorded run, for machines that cannot allocate cache.
//!
//! A sampled curve of the replayed trace, warm, gives the misses with 1, 2, ... ways of a node's cache. A linear model of
//! cycles turns misses into times (`nigh_llc::CpiModel`), and both curves become a training row. Nothing is run or timed:
//! the cycles are those of the simulator's core (`CoreTiming::CASCADE_LAKE`). Times are estimates, and a need is as good as
//! the assumed ratio of a miss to an instruction. Pure.

use nigh_llc::{CpiModel, CurveError, MissCurve, OneRunRule, SizingInput, Tolerance, TrainingRow, Work};
use nigh_sim::llc::{
    CoreTiming, FrameAllocator, GeometryError, LlcGeometry, OutOfFrames, ReplayTrace, ReplayTraceError, SampleRate,
    SampleRateError, SampledCurve, Sampling, Trace, TraceError,
};
use nigh_terms::{ByteSize, Ways};
use thiserror::Error;

/// Cycles per second of the modelled core.
pub(crate) const HERTZ: f64 = 2.4e9;
/// The most lines that a curve follows; bounds the error and the memory of the sample (SHARDS).
const FOLLOWED_MAX: usize = 1 << 16;
/// The seed of the pages' places in the simulated memory.
const FRAMES_SEED: u64 = 1;

/// Why a trace gives no training row.
#[derive(Debug, Error)]
pub(crate) enum OneRunError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Sample(#[from] SampleRateError),
    #[error(transparent)]
    Replay(#[from] ReplayTraceError),
    #[error(transparent)]
    Frames(#[from] OutOfFrames),
    #[error("this node's cache cannot be simulated: {0}")]
    Cache(#[from] GeometryError),
    #[error("the trace gives no miss curve: {0}")]
    Curve(#[from] CurveError),
}

/// The core's costs for the model, where the cycles of a miss include those of a hit.
pub(crate) fn cycles(timing: &CoreTiming) -> CpiModel {
    let whole = |cycles: u32| f64::from(timing.hit_cycles + cycles);
    CpiModel {
        cycles_per_instruction: f64::from(timing.base_cpi_milli) / 1e3,
        hit_cycles: f64::from(timing.hit_cycles),
        miss_cycles: whole(timing.miss_cycles),
        neighbour_miss_cycles: timing.neighbour_miss_cycles.map(whole),
        megahertz: HERTZ / 1e6,
    }
}

/// The row of a run with these misses and instructions, counted for a cache with `lines_per_way`.
pub(crate) fn priced(
    input: SizingInput,
    misses: MissCurve,
    instructions: f64,
    timing: &CoreTiming,
    lines_per_way: f64,
) -> Result<TrainingRow, CurveError> {
    let work = Work { instructions, neighbour_share: 0.0 };
    let rule = OneRunRule { model: cycles(timing), threshold: Tolerance::FIVE_PERCENT, lines_per_way };
    TrainingRow::one_run(input, misses, &work, &rule)
}

/// The row that the trace in `file` gives on a cache of `ways` ways with `lines_per_way`, for an input of `size` bytes (by
/// default the size in the trace's header).
pub(crate) fn of_file(
    file: &[u8],
    size: Option<ByteSize>,
    ways: Ways,
    lines_per_way: f64,
) -> Result<TrainingRow, OneRunError> {
    // The lines of a way fit in 32 bits: no cache has 2^38 bytes.
    let geometry = LlcGeometry::of_way_lines(lines_per_way.round() as u32, ways)?;
    let trace = Trace::decode(file)?;
    of_trace(&trace, size.unwrap_or(trace.header.input_bytes), geometry)
}

fn of_trace(trace: &Trace, size: ByteSize, geometry: LlcGeometry) -> Result<TrainingRow, OneRunError> {
    let header = &trace.header;
    let counted: u64 = trace.accesses.iter().map(|access| u64::from(access.instructions)).sum();
    let rate = SampleRate::new(header.sampling.number())?;
    let replay = ReplayTrace::new(trace.accesses.iter().copied(), header.instructions - counted, rate)?;
    let space = FrameAllocator::new(FRAMES_SEED).allocate(replay.pages())?;
    // A trace with some of the sets is a sample already, and its neighbouring sets differ: follow every line.
    let mut curve = match header.sampling {
        Sampling::ALL => SampledCurve::bounded(geometry, FOLLOWED_MAX),
        _ => SampledCurve::at_rate(geometry, SampleRate::ALL)?,
    };
    replay.lines().for_each(|line| curve.access(space.physical(line)));
    // Replay again: the run in a warm sandbox.
    curve.count_anew();
    replay.lines().for_each(|line| curve.access(space.physical(line)));
    let curve = curve.curve();
    // Scale to the whole input and all lines if a stretch or some lines were recorded.
    let scale = f64::from(rate.one_in()) / header.share();
    let misses = (1..=geometry.ways().0).map(|ways| curve.misses(Ways(ways)) * scale).collect();
    let misses = MissCurve::new(curve.accesses() * scale, misses)?;
    let input = SizingInput { size, features: Vec::new() };
    let lines_per_way = geometry.sets() as f64;
    let instructions = header.whole_instructions as f64;
    Ok(priced(input, misses, instructions, &CoreTiming::CASCADE_LAKE, lines_per_way)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use nigh_llc::CacheClass;

    use super::*;

    const WAYS: Ways = Ways(11);
    const LINES: f64 = 20_480.0;

    fn kept(file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/llc-traces").join(file)
    }

    fn learned(name: &str, size: Option<ByteSize>) -> TrainingRow {
        let file = std::fs::read(kept(&format!("{name}.trace.zst"))).unwrap();
        of_file(&file, size, WAYS, LINES).unwrap()
    }

    /// The exact counts of a recording: requests, then warm misses with 1 to 11 ways.
    fn exact(name: &str) -> (f64, Vec<f64>) {
        let text = std::fs::read_to_string(kept("curves.csv")).unwrap();
        let header: Vec<_> = text.lines().next().unwrap().split(',').collect();
        let line = text.lines().find(|line| line.starts_with(&format!("{name},"))).unwrap();
        let fields: BTreeMap<_, _> = header.iter().copied().zip(line.split(',')).collect();
        let number = |column: &str| fields[column].parse::<f64>().unwrap();
        (number("l2_misses"), (1..=11).map(|ways| number(&format!("warm_{ways}"))).collect())
    }

    #[test]
    fn a_trace_gives_the_need_that_exact_counts_give() {
        for (name, ways, class) in [
            ("blur-124k", 1, CacheClass::Light),
            ("blur-699k", 4, CacheClass::Sensitive),
            ("effect-26m", 1, CacheClass::Thrashing),
        ] {
            let row = learned(name, None);
            assert_eq!((row.ways, row.class), (Ways(ways), class), "{name}");
            let curves = row.curves.unwrap();
            let (requests, misses) = exact(name);
            let scale = curves.misses.accesses() / requests;
            let error =
                |(ways, misses): (u8, &f64)| (curves.misses.misses(Ways(ways)) / scale - misses).abs() / requests;
            let mean = (1..).zip(&misses).map(error).sum::<f64>() / misses.len() as f64;
            assert!(mean <= 0.015, "{name}: mean error {mean} of the miss ratio");
        }
    }

    #[test]
    fn the_input_is_as_large_as_was_said_or_as_the_trace_says() {
        assert_eq!(learned("blur-124k", None).input.size, ByteSize(124_177));
        assert_eq!(learned("blur-124k", Some(ByteSize::kib(120))).input.size, ByteSize::kib(120));
    }

    #[test]
    fn a_stretch_of_a_run_is_priced_as_the_whole_of_it() {
        let whole = std::fs::read(kept("blur-124k.trace.zst")).unwrap();
        let mut trace = Trace::decode(&whole).unwrap();
        let one = of_trace(&trace, ByteSize(1), LlcGeometry::XEON_SILVER_4210R).unwrap();
        trace.header.whole_instructions *= 4;
        let four = of_trace(&trace, ByteSize(1), LlcGeometry::XEON_SILVER_4210R).unwrap();
        let seconds = |row: &TrainingRow| row.curves.as_ref().unwrap().times.best().as_secs_f64();
        assert!((seconds(&four) / seconds(&one) - 4.0).abs() < 1e-6);
        assert_eq!((four.ways, four.class), (one.ways, one.class));
    }

    #[test]
    fn what_is_cut_damaged_or_no_trace_gives_an_error_and_no_row() {
        let whole = std::fs::read(kept("blur-124k.trace.zst")).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x10;
        for (what, bytes) in [("cut", &whole[..whole.len() - 9]), ("damaged", &damaged), ("none", b"{\"size\": 1}")] {
            let error = of_file(bytes, None, WAYS, LINES).unwrap_err();
            assert!(matches!(error, OneRunError::Trace(_)), "{what}: {error}");
        }
        assert!(matches!(of_file(&whole, None, WAYS, 0.0), Err(OneRunError::Cache(_))));
    }
}
