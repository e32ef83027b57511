//! `nigh llc pack-trace`: makes a memory trace of a tracer's recording.
//!
//! The tracer (`experiments/llc-traces/cache_filter.c`) has removed the accesses that the private caches serve. This command
//! adds what the records do not hold (function, input, part of the run), keeps one line in `--keep-one-in`, and compresses.
//! The zstd program compresses, since no encoder in Rust has its highest levels. The trace is read back before it is
//! written.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use nigh_sim::llc::{PrivateCaches, Sampling, Trace, TraceHeader};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::report::print_report;

/// The largest recording that is read into memory.
const RAW_BYTES_MAX: u64 = 4 << 30;
/// The highest level without `--ultra`. The window of 8 MiB is the largest that the reader of traces accepts.
const ZSTD: [&str; 4] = ["-19", "--long=23", "-q", "-c"];
const ZSTD_SUFFIX: &str = "zst";

/// Options of `nigh llc pack-trace`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  nigh llc pack-trace blur.raw blur.trace.zst --stats blur.json --function blur \
--input-bytes 124177\n\nHow to record: data/llc-traces/README.md. OUT.trace stays uncompressed; both are read alike.")]
pub struct PackTraceArgs {
    /// The recording that the tracer wrote (its out=)
    raw: PathBuf,
    /// The trace to write: NAME.trace.zst, or NAME.trace
    out: PathBuf,
    /// The counts that the tracer wrote with the recording (its stats=)
    #[arg(long, value_name = "FILE")]
    stats: PathBuf,
    /// The function's name
    #[arg(long, value_name = "NAME")]
    function: String,
    /// The size of the whole input
    #[arg(long, value_name = "SIZE")]
    input_bytes: ByteSize,
    /// A description of the input
    #[arg(long, value_name = "WORDS", default_value = "")]
    input: String,
    /// How many instructions a run on the whole input executes [default: as many as were recorded; needed if the recording
    /// covers only a part of the run]
    #[arg(long, value_name = "N")]
    whole_instructions: Option<u64>,
    /// Keep the accesses to one cache line in N, a power of two: 1, 2, 4 ... 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep_one_in: u32,
}

/// The part of the tracer's counts that is read.
#[derive(Deserialize)]
struct Stats {
    instructions: u64,
    records: u64,
}

/// The written trace.
#[derive(Debug, Serialize)]
struct PackedTrace {
    #[serde(skip)]
    out: PathBuf,
    accesses: usize,
    instructions: u64,
    raw_bytes: u64,
    bytes: u64,
}

impl PackTraceArgs {
    /// Makes the trace.
    ///
    /// # Errors
    /// If the recording is incomplete, or a file cannot be read or written.
    pub fn run(&self, json: bool) -> Result<(), LabError> {
        let packed = self.pack()?;
        print_report(&packed, || packed.text(), json)
    }

    fn pack(&self) -> Result<PackedTrace, LabError> {
        let sampling = Sampling::one_in(self.keep_one_in).ok_or_else(|| {
            LabError::Usage(format!("--keep-one-in {}: give a power of two up to 64", self.keep_one_in))
        })?;
        let stats = self.read_stats()?;
        let raw = self.read_raw(stats.records)?;
        let header = TraceHeader {
            function: self.function.clone(),
            input: self.input.clone(),
            input_bytes: self.input_bytes,
            instructions: stats.instructions,
            whole_instructions: self.whole_instructions.unwrap_or(stats.instructions),
            sampling,
            filter: PrivateCaches::XEON_4210R,
        };
        let trace = Trace::from_raw(header, &raw).at(&self.raw)?;
        let plain = trace.encode().at(&self.raw)?;
        let is_compressed = self.out.extension().is_some_and(|suffix| suffix == ZSTD_SUFFIX);
        let file = if is_compressed { compress(&plain)? } else { plain };
        if Trace::decode(&file).at(&self.raw)? != trace {
            let reason = "the packed trace reads back differently; nothing is written";
            return Err(LabError::file(&self.raw, &reason));
        }
        write(&self.out, &file).at(&self.out)?;
        Ok(PackedTrace {
            out: self.out.clone(),
            accesses: trace.accesses.len(),
            instructions: stats.instructions,
            raw_bytes: raw.len() as u64,
            bytes: file.len() as u64,
        })
    }

    fn read_stats(&self) -> Result<Stats, LabError> {
        let text = fs::read(&self.stats).at(&self.stats)?;
        let hint = |error| format!("no counts of the tracer: {error}; record again");
        serde_json::from_slice(&text).map_err(hint).at(&self.stats)
    }

    /// The recording, if it is complete: after an interrupted run the counts are missing or differ.
    fn read_raw(&self, records: u64) -> Result<Vec<u8>, LabError> {
        let bytes = fs::metadata(&self.raw).at(&self.raw)?.len();
        if bytes > RAW_BYTES_MAX {
            let (bytes, limit) = (ByteSize(bytes), ByteSize(RAW_BYTES_MAX));
            let reason = format!("the recording has {bytes}, at most {limit} are packed; record a shorter stretch");
            return Err(LabError::file(&self.raw, &reason));
        }
        let raw = fs::read(&self.raw).at(&self.raw)?;
        let found = Trace::raw_accesses(&raw);
        if found != records {
            let reason = format!(
                "the recording holds {found} accesses and its counts say {records}: one of the two files is cut short, or \
                 they are of different runs; record again"
            );
            return Err(LabError::file(&self.raw, &reason));
        }
        Ok(raw)
    }
}

impl PackedTrace {
    fn text(&self) -> String {
        let Self { out, accesses, instructions, raw_bytes, bytes } = self;
        let (out, bytes, raw_bytes) = (out.display(), ByteSize(*bytes), ByteSize(*raw_bytes));
        format!("{out}: {accesses} accesses in {instructions} instructions, {bytes} (recorded: {raw_bytes})")
    }
}

fn compress(plain: &[u8]) -> Result<Vec<u8>, LabError> {
    let scratch = "a temporary file for the trace";
    // zstd writes the length of a file into the frame; a pipe has no length.
    let mut file = tempfile::tempfile().at(scratch)?;
    file.write_all(plain).and_then(|()| file.rewind()).at(scratch)?;
    let ran = Command::new("zstd").args(ZSTD).stdin(Stdio::from(file)).output();
    let ran = ran.at("zstd, which compresses traces (install it, or name the trace NAME.trace)")?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let words = String::from_utf8_lossy(&ran.stderr);
    Err(LabError::file("zstd", &format!("compressing the trace failed: {} {}", ran.status, words.trim())))
}

/// Writes the whole file or nothing.
fn write(out: &Path, file: &[u8]) -> std::io::Result<()> {
    let part = out.with_added_extension("part");
    let written = File::create(&part).and_then(|mut to| to.write_all(file).and_then(|()| to.sync_all()));
    written.and_then(|()| fs::rename(&part, out)).inspect_err(|_| {
        // The caller reports the first error.
        let _ = fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tracer's output of two loads and a pause, and its counts.
    fn recorded(folder: &Path, records: &[u64], counted: u64) -> PackTraceArgs {
        let (raw, stats) = (folder.join("raw"), folder.join("stats.json"));
        fs::write(&raw, records.iter().flat_map(|record| record.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        fs::write(&stats, format!(r#"{{"instructions": 5000, "records": {counted}, "threads": 1}}"#)).unwrap();
        PackTraceArgs {
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

    #[test]
    fn what_the_tracer_wrote_becomes_a_trace_with_its_head() {
        let folder = tempfile::tempdir().unwrap();
        let mut args = recorded(folder.path(), &[7 << 22 | 100 << 3 | 1, 60 << 3 | 7, 9 << 22 | 50 << 3 | 2], 2);
        args.pack().unwrap();
        let trace = Trace::decode(&fs::read(&args.out).unwrap()).unwrap();
        assert_eq!((trace.accesses.len(), trace.header.share()), (2, 0.25));
        assert_eq!((trace.header.function.as_str(), trace.header.input_bytes), ("blur", ByteSize(1000)));
        args.keep_one_in = 3;
        assert!(matches!(args.pack(), Err(LabError::Usage(_))));
    }

    #[test]
    fn a_recording_that_was_cut_short_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let args = recorded(folder.path(), &[7 << 22 | 1], 2);
        let refused = args.pack().unwrap_err().to_string();
        assert!(refused.contains("cut short"), "{refused}");
        fs::write(&args.stats, "").unwrap();
        assert!(args.pack().is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the recording and its counts alone");
    }
}
