//! `nigh llc pack-trace`: makes a memory trace from a tracer's recording.
//!
//! The tracer (`experiments/llc-traces/cache_filter.c`) has removed accesses that private caches serve. This adds the
//! function, the input and the recorded part of the run, keeps one line in N if asked, and compresses. The program zstd
//! compresses, because no encoder in Rust has its highest levels. The trace is read back before it is written.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use nigh_sim::llc::{PrivateCaches, Sampling, Trace, TraceHeader};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Bytes of a tracer's output at most.
const RAW_BYTES_MAX: u64 = 4 << 30;
/// The highest level without `--ultra`, with a window that the reader of traces accepts (8 MiB).
const ZSTD: [&str; 4] = ["-19", "--long=23", "-q", "-c"];
const ZSTD_SUFFIX: &str = "zst";

/// Options of `nigh llc pack-trace`.
#[derive(Args)]
#[command(after_help = "Example:\n  nigh llc pack-trace blur.raw blur.trace.zst --stats blur.json --function blur \
--input-bytes 124177\n\ndata/llc-traces/README.md says how to record. A .trace file is uncompressed; Nigh reads both.")]
pub(crate) struct PackArgs {
    /// The tracer's recording (its out=)
    raw: PathBuf,
    /// The trace to write: NAME.trace.zst, or NAME.trace
    out: PathBuf,
    /// The tracer's counts (its stats=)
    #[arg(long, value_name = "FILE")]
    stats: PathBuf,
    /// The function's name
    #[arg(long, value_name = "NAME")]
    function: String,
    /// Bytes of the whole input
    #[arg(long, value_name = "SIZE")]
    input_bytes: ByteSize,
    /// A description of the input
    #[arg(long, value_name = "WORDS", default_value = "")]
    input: String,
    /// Instructions that the whole input takes, if only a part was recorded
    #[arg(long, value_name = "N")]
    whole_instructions: Option<u64>,
    /// Keep one cache line in N: 1, 2, 4 ... 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep_one_in: u32,
}

/// The needed part of the tracer's counts.
#[derive(Deserialize)]
struct Stats {
    instructions: u64,
    records: u64,
}

/// What was written.
#[derive(Serialize)]
struct PackSummary {
    accesses: usize,
    instructions: u64,
    raw_bytes: u64,
    bytes: u64,
}

/// Packs.
pub(super) fn run(args: &PackArgs, globals: &Globals) -> Result<(), CliError> {
    let sampling = Sampling::one_in(args.keep_one_in)
        .ok_or_else(|| CliError::Usage(format!("--keep-one-in {}: give a power of two up to 64", args.keep_one_in)))?;
    let compressed = args.out.extension().is_some_and(|suffix| suffix == ZSTD_SUFFIX);
    let stats = read_stats(&args.stats)?;
    let raw = read_raw(&args.raw, stats.records)?;
    let header = TraceHeader {
        function: args.function.clone(),
        input: args.input.clone(),
        input_bytes: args.input_bytes,
        instructions: stats.instructions,
        whole_instructions: args.whole_instructions.unwrap_or(stats.instructions),
        sampling,
        filter: PrivateCaches::XEON_4210R,
    };
    let failed = |error: &dyn std::fmt::Display| CliError::Failed(format!("{}: {error}", args.raw.display()));
    let trace = Trace::from_raw(header, &raw).map_err(|error| failed(&error))?;
    let plain = trace.encode().map_err(|error| failed(&error))?;
    let file = if compressed { compress(&plain)? } else { plain };
    if Trace::decode(&file).map_err(|error| failed(&error))? != trace {
        return Err(failed(&"what was packed does not read back as it was; nothing is written"));
    }
    write(&args.out, &file)?;
    let (raw_bytes, bytes) = (raw.len() as u64, file.len() as u64);
    let packed = PackSummary { accesses: trace.accesses.len(), instructions: stats.instructions, raw_bytes, bytes };
    if globals.json {
        return output::json(&packed);
    }
    output::line(format!(
        "{}: {} accesses in {} instructions, {} (recorded: {})",
        args.out.display(),
        packed.accesses,
        packed.instructions,
        ByteSize(bytes),
        ByteSize(raw_bytes)
    ))
}

fn read_stats(file: &Path) -> Result<Stats, CliError> {
    let text = fs::read(file).map_err(CliError::local(file.display()))?;
    serde_json::from_slice(&text).map_err(|error| {
        CliError::Failed(format!("{} has no counts of the tracer: {error}; record again", file.display()))
    })
}

/// The records. All must be there: an interrupted tracer has no counts, or others.
fn read_raw(file: &Path, records: u64) -> Result<Vec<u8>, CliError> {
    let what = file.display();
    let bytes = fs::metadata(file).map_err(CliError::local(&what))?.len();
    if bytes > RAW_BYTES_MAX {
        let (bytes, limit) = (ByteSize(bytes), ByteSize(RAW_BYTES_MAX));
        return Err(CliError::Failed(format!(
            "{what} has {bytes}, at most {limit} are packed; record a shorter stretch"
        )));
    }
    let raw = fs::read(file).map_err(CliError::local(&what))?;
    let there = Trace::raw_accesses(&raw);
    if there != records {
        return Err(CliError::Failed(format!(
            "{what} holds {there} accesses, its counts name {records}: one of the two is cut short or of another run; \
             record again"
        )));
    }
    Ok(raw)
}

fn compress(plain: &[u8]) -> Result<Vec<u8>, CliError> {
    let scratch = "a file for the trace before it is compressed";
    // A file instead of a pipe: zstd writes its length into the frame.
    let mut file = tempfile::tempfile().map_err(CliError::local(scratch))?;
    file.write_all(plain).and_then(|()| file.rewind()).map_err(CliError::local(scratch))?;
    let ran = Command::new("zstd").args(ZSTD).stdin(Stdio::from(file)).output().map_err(CliError::local(
        "zstd, which compresses traces, cannot be run (install it, or name the trace NAME.trace)",
    ))?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let words = String::from_utf8_lossy(&ran.stderr);
    Err(CliError::Failed(format!("zstd could not compress the trace: {} {}", ran.status, words.trim())))
}

/// Writes the whole file or nothing.
fn write(out: &Path, file: &[u8]) -> Result<(), CliError> {
    let part = out.with_added_extension("part");
    let written = File::create(&part).and_then(|mut to| to.write_all(file).and_then(|()| to.sync_all()));
    written.and_then(|()| fs::rename(&part, out)).map_err(|source| {
        // The first error is the one to report.
        let _ = fs::remove_file(&part);
        CliError::Local { what: out.display().to_string(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tracer's output of two loads and a pause, and its counts.
    fn recorded(folder: &Path, records: &[u64], counted: u64) -> PackArgs {
        let (raw, stats) = (folder.join("raw"), folder.join("stats.json"));
        fs::write(&raw, records.iter().flat_map(|record| record.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        fs::write(&stats, format!(r#"{{"instructions": 5000, "records": {counted}, "threads": 1}}"#)).unwrap();
        PackArgs {
            raw,
            out: folder.join("out.trace"),
            stats,
            function: "blur".to_owned(),
            input_bytes: ByteSize(1000),
            input: "a picture".to_owned(),
            whole_instructions: Some(20_000),
            keep_one_in: 1,
        }
    }

    fn globals() -> Globals {
        Globals { json: false, state: None, config: None, profile: None, endpoint: None }
    }

    #[test]
    fn what_the_tracer_wrote_becomes_a_trace_with_its_head() {
        let folder = tempfile::tempdir().unwrap();
        let mut args = recorded(folder.path(), &[7 << 22 | 100 << 3 | 1, 60 << 3 | 7, 9 << 22 | 50 << 3 | 2], 2);
        run(&args, &globals()).unwrap();
        let trace = Trace::decode(&fs::read(&args.out).unwrap()).unwrap();
        assert_eq!((trace.accesses.len(), trace.header.share()), (2, 0.25));
        assert_eq!((trace.header.function.as_str(), trace.header.input_bytes), ("blur", ByteSize(1000)));
        args.keep_one_in = 3;
        assert!(matches!(run(&args, &globals()), Err(CliError::Usage(_))));
    }

    #[test]
    fn a_recording_that_was_cut_short_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let args = recorded(folder.path(), &[7 << 22 | 1], 2);
        let refused = run(&args, &globals()).unwrap_err().to_string();
        assert!(refused.contains("cut short"), "{refused}");
        fs::write(&args.stats, "").unwrap();
        assert!(run(&args, &globals()).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the recording and its counts alone");
    }
}
