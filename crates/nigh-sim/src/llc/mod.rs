//! The last-level cache: a way-partitioned, set-associative cache shared by many cores.

mod access;
mod trace;

pub use access::{AccessKind, LINE_BYTES, LlcAccess};
pub use trace::{
    PrivateCaches, RECORDS_MAX, RawError, Sampling, TEXT_BYTES_MAX, TRACE_BYTES_MAX, Trace, TraceError, TraceHeader,
};
