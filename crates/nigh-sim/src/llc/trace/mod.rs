//! A recorded memory trace: one function's requests to the last-level cache, after the private caches of its core.
//!
//! It holds the accesses in order and their context: the input, the number of instructions, the kept lines, and the
//! recorded part of the work. It simulates nothing, and knows files only as bytes. `experiments/llc-traces` records
//! traces; `data/llc-traces` has the recorded ones.

mod format;
mod raw;
mod reader;
mod residents;
mod sampling;
mod varint;
mod writer;

pub use format::{RECORDS_MAX, TEXT_BYTES_MAX, TRACE_BYTES_MAX, TraceError};
pub use raw::RawError;
pub use sampling::Sampling;

use nigh_terms::ByteSize;

use super::{AccessKind, LlcAccess};

/// The private caches that stood before a trace; write-back, least recently used goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateCaches {
    /// Bytes of the first level: as many for instructions as for data.
    pub l1: ByteSize,
    /// Ways of each first-level cache.
    pub l1_ways: u32,
    /// Bytes of the second level.
    pub l2: ByteSize,
    /// Ways of the second level.
    pub l2_ways: u32,
}

impl PrivateCaches {
    /// Those of a core of a Xeon Silver 4210R, CASY's machine.
    pub const XEON_4210R: Self = Self { l1: ByteSize::kib(32), l1_ways: 8, l2: ByteSize::mib(1), l2_ways: 16 };
}

/// What a trace was recorded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceHeader {
    /// The function's name.
    pub function: String,
    /// What its input is, in words: origin, pixels, seconds.
    pub input: String,
    /// Bytes of the whole input.
    pub input_bytes: ByteSize,
    /// Instructions retired while it was recorded, those after the last access too.
    pub instructions: u64,
    /// Instructions that the whole input takes: more than `instructions` where a stretch was recorded.
    pub whole_instructions: u64,
    /// Which lines were kept.
    pub sampling: Sampling,
    /// The caches whose misses and evictions these are.
    pub filter: PrivateCaches,
}

impl TraceHeader {
    /// How much of the whole work was recorded, in (0, 1]: times of the trace are to be divided by it.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.instructions as f64 / self.whole_instructions as f64
    }
}

/// A trace in memory: 16 bytes an access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it was recorded from.
    pub header: TraceHeader,
    /// Its accesses in their order. Their instructions add up to the header's at most.
    pub accesses: Vec<LlcAccess>,
}

impl Trace {
    /// The same trace with fewer lines kept, so that traces of different samplings can share a cache.
    ///
    /// `None` if this one does not have the lines that `sampling` keeps, or if so many instructions lie between two
    /// of its accesses that they cannot be written.
    #[must_use]
    pub fn thinned(&self, sampling: Sampling) -> Option<Self> {
        if !self.header.sampling.contains(sampling) {
            return None;
        }
        let mut passed: u64 = 0;
        let mut accesses = Vec::new();
        for access in &self.accesses {
            passed += u64::from(access.instructions);
            if sampling.keeps(access.line) {
                accesses.push(LlcAccess { instructions: u32::try_from(passed).ok()?, ..*access });
                passed = 0;
            }
        }
        Some(Self { header: TraceHeader { sampling, ..self.header.clone() }, accesses })
    }
}

#[cfg(test)]
pub(super) mod examples {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::format::LINE_MAX;
    use super::*;

    const KINDS: [AccessKind; 5] =
        [AccessKind::Fetch, AccessKind::Load, AccessKind::Store, AccessKind::CleanEviction, AccessKind::DirtyEviction];

    fn line() -> impl Strategy<Value = u64> {
        prop_oneof![0..=LINE_MAX, 0x1_0000_u64..0x1_0100, Just(0), Just(LINE_MAX)]
    }

    fn access() -> impl Strategy<Value = LlcAccess> {
        let instructions = prop_oneof![0u32..200, any::<u32>()];
        (line(), instructions, prop::sample::select(&KINDS[..])).prop_map(|(line, instructions, kind)| LlcAccess {
            line,
            instructions,
            kind,
        })
    }

    /// Any trace that is consistent in itself.
    pub(super) fn trace() -> impl Strategy<Value = Trace> {
        (vec(access(), 0..60), 0u32..7, any::<u32>(), any::<u32>(), any::<u64>(), "\\PC{0,20}").prop_map(
            |(accesses, bits, after, more, bytes, input)| {
                let sampling = Sampling::one_in(1 << bits).unwrap();
                let accesses: Vec<_> = accesses.into_iter().filter(|access| sampling.keeps(access.line)).collect();
                let counted: u64 = accesses.iter().map(|access| u64::from(access.instructions)).sum();
                let instructions = counted + u64::from(after) + 1;
                let header = TraceHeader {
                    function: "blur".into(),
                    input,
                    input_bytes: ByteSize(bytes),
                    instructions,
                    whole_instructions: instructions + u64::from(more),
                    sampling,
                    filter: PrivateCaches::XEON_4210R,
                };
                Trace { header, accesses }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_thinned_trace_has_the_kept_lines_alone_and_loses_no_instruction_between_them(
            trace in examples::trace(), bits in 0u32..7
        ) {
            let sampling = Sampling::one_in(1 << bits).unwrap();
            let Some(thinned) = trace.thinned(sampling) else {
                let sum: u64 = trace.accesses.iter().map(|access| u64::from(access.instructions)).sum();
                prop_assert!(!trace.header.sampling.contains(sampling) || sum > u64::from(u32::MAX));
                return Ok(());
            };
            let reached = |trace: &Trace| {
                let mut at = 0u64;
                let at_each = trace.accesses.iter().map(|access| {
                    at += u64::from(access.instructions);
                    (at, access.line, access.kind)
                });
                at_each.collect::<Vec<_>>()
            };
            let expected: Vec<_> = reached(&trace).into_iter().filter(|access| sampling.keeps(access.1)).collect();
            prop_assert_eq!(reached(&thinned), expected);
            prop_assert_eq!(thinned.header.sampling, sampling);
        }
    }
}
