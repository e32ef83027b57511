//! The layout of a trace file, its limits, and what can be wrong with one.
//!
//! ```text
//! magic            8 bytes, "NIGHLLC1"
//! sampling         varint, one line in so many is kept
//! filter           4 varints: L1 bytes, L1 ways, L2 bytes, L2 ways
//! input bytes      varint
//! instructions     varint, recorded
//! whole            varint, instructions of the whole input
//! function, input  each a varint of bytes, then UTF-8
//! n                varint, accesses
//! kinds            n bytes: 0 fetch, 1 load, 2 store, 3 clean eviction, 4 dirty eviction
//! lines            a varint for each access that is no eviction: folded difference to the line of the one before it
//!                  (the first: to 0)
//! evicted lines    for each eviction: a varint p > 0, the line is at place p - 1 among the `residents` of the set of
//!                  the access before; or 0 and a varint, folded difference to the line of the access before
//! instructions     n varints: since the access before; first those of what is no eviction, then those of evictions
//! crc              4 bytes, little-endian: CRC-32 (ISO-HDLC) of all before
//! ```
//! Columns, not rows, since each kind of number repeats with a period of its own and a general compressor finds it.
//! The file is kept as one zstd frame of that (`.trace.zst`); uncompressed it is as valid. zstd is decoded by
//! `ruzstd`: pure Rust, so that bytes from outside meet no C code, and no C compiler is needed. It is written by
//! the zstd program, whose highest levels no pure encoder has.

use crc_fast::CrcAlgorithm;

use super::super::LINE_BYTES;
use super::AccessKind;
use super::Sampling;

/// The first bytes of a trace.
pub(super) const MAGIC: [u8; 8] = *b"NIGHLLC1";
/// What the magic of every format begins with; the format's digit follows.
pub(super) const MAGIC_NAME: &[u8] = b"NIGHLLC";
/// The first bytes of a zstd frame (RFC 8878).
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes of the checksum at the end.
pub(super) const CRC_BYTES: usize = 4;

/// Stands before an evicted line that is written in full.
pub(super) const IN_FULL: u64 = 0;

/// Accesses a trace may have: 512 MiB in memory.
pub const RECORDS_MAX: usize = 1 << 25;
/// Bytes of an uncompressed trace.
pub const TRACE_BYTES_MAX: usize = 256 << 20;
/// Bytes of a function's name, and of the words about its input.
pub const TEXT_BYTES_MAX: usize = 1024;
/// How far back a zstd frame may refer, which is memory that reading it takes.
pub(super) const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// The highest line of an address of 64 bits.
pub(super) const LINE_MAX: u64 = u64::MAX / LINE_BYTES;

/// Why bytes are no trace, or a trace cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Neither of the two beginnings.
    #[error("not a memory trace: it begins neither as one nor as a zstd frame. Hint: data/llc-traces has some")]
    NotATrace,
    /// Written by a newer Nigh.
    #[error("the trace has format {}, and this build reads 1; use the newer nigh that wrote it", char::from(*.0))]
    Newer(
        /// The digit of its format.
        u8,
    ),
    /// The compression is broken.
    #[error("the trace's zstd frame cannot be decoded: {0}. Hint: check the file out again")]
    Compression(String),
    /// The bytes are not those that were written.
    #[error("the trace is damaged: its checksum is {computed:08x}, not {stored:08x}. Hint: check the file out again")]
    Checksum {
        /// The checksum at the end.
        stored: u32,
        /// That of the bytes before it.
        computed: u32,
    },
    /// It ends, or a number is malformed.
    #[error("the trace ends early or is malformed in its {0}")]
    Malformed(&'static str),
    /// Bytes after the last column.
    #[error("{0} bytes follow the trace's last access")]
    Trailing(usize),
    /// Something exceeds a limit of the format.
    #[error("the trace's {what} is {value}, above the limit of {limit}")]
    Above {
        /// What does.
        what: &'static str,
        /// How much it is.
        value: u64,
        /// How much it may be.
        limit: u64,
    },
    /// The sampling is none that exists.
    #[error("the trace keeps one cache line in {0}, which is not a power of two up to 64")]
    Sampling(u64),
    /// An access that the header excludes.
    #[error("access {index} of the trace is to cache line {line:#x}, which its sampling rate of {sampling} leaves out")]
    NotKept {
        /// Which access.
        index: usize,
        /// Its line.
        line: u64,
        /// The header's sampling.
        sampling: Sampling,
    },
    /// The header's instructions do not fit together or do not fit the accesses.
    #[error(
        "the instruction counts of the trace do not fit together: {counted} up to its last access, {instructions} recorded, {whole} in the whole run"
    )]
    Instructions {
        /// Those before the last access.
        counted: u64,
        /// Those recorded.
        instructions: u64,
        /// Those of the whole.
        whole: u64,
    },
}

/// `value`, if it is not above `limit`.
pub(super) fn at_most(what: &'static str, value: u64, limit: u64) -> Result<u64, TraceError> {
    if value <= limit { Ok(value) } else { Err(TraceError::Above { what, value, limit }) }
}

/// 0 < recorded <= whole, and no more before the last access than recorded.
pub(super) fn check_instructions(counted: u64, instructions: u64, whole: u64) -> Result<(), TraceError> {
    if instructions > 0 && counted <= instructions && instructions <= whole {
        Ok(())
    } else {
        Err(TraceError::Instructions { counted, instructions, whole })
    }
}

/// The checksum of a file's bytes before it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// Puts the checksum at the end of what is otherwise complete.
pub(super) fn seal(file: &mut Vec<u8>) {
    let crc = crc32(file);
    file.extend(crc.to_le_bytes());
}

/// Whether the second level gives something up, rather than asking for it.
pub(super) const fn is_eviction(kind: AccessKind) -> bool {
    matches!(kind, AccessKind::CleanEviction | AccessKind::DirtyEviction)
}

/// A kind's number; the recorder's and the file's are the same.
pub(super) const fn kind_code(kind: AccessKind) -> u8 {
    match kind {
        AccessKind::Fetch => 0,
        AccessKind::Load => 1,
        AccessKind::Store => 2,
        AccessKind::CleanEviction => 3,
        AccessKind::DirtyEviction => 4,
    }
}

/// The kind of a number.
pub(super) const fn kind_of(code: u8) -> Option<AccessKind> {
    match code {
        0 => Some(AccessKind::Fetch),
        1 => Some(AccessKind::Load),
        2 => Some(AccessKind::Store),
        3 => Some(AccessKind::CleanEviction),
        4 => Some(AccessKind::DirtyEviction),
        _ => None,
    }
}
