//! What the recorder writes (`experiments/llc-traces/cache_filter.c`), made into a trace.
//!
//! A record is a little-endian u64: line << 22 | instructions since the record before << 3 | kind; kind 7 carries
//! instructions that did not fit. Raw records are ours and of one run: they are checked, and bounded by what the
//! trace that is made of them may hold.

use super::format::{RECORDS_MAX, TraceError, at_most, kind_of};
use super::{LlcAccess, Trace, TraceHeader};

const RECORD_BYTES: usize = 8;
const KIND_BITS: u32 = 3;
const INSTRUCTION_BITS: u32 = 19;
const INSTRUCTIONS_ONLY: u8 = 7;

/// Why raw records make no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RawError {
    /// The recorder did not end well.
    #[error("{0} bytes follow the last whole record of 8. Hint: the recording was cut short; record it again")]
    Cut(usize),
    /// A kind that there is not.
    #[error("record {index} has the unknown kind {code}. Hint: is this what cache_filter.c wrote?")]
    Kind {
        /// Which record.
        index: usize,
        /// Its kind.
        code: u8,
    },
    /// Too long a way between two lines kept.
    #[error("{instructions} instructions lie before record {index}, more than an access can carry")]
    Gap {
        /// Which record.
        index: usize,
        /// How many.
        instructions: u64,
    },
    /// Too many.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl Trace {
    /// The accesses among `records`, whether they would be kept or not: what the recorder counts.
    #[must_use]
    pub fn raw_accesses(records: &[u8]) -> u64 {
        let kind = |record: &[u8; RECORD_BYTES]| record[0] & ((1 << KIND_BITS) - 1);
        records.as_chunks::<RECORD_BYTES>().0.iter().filter(|record| kind(record) != INSTRUCTIONS_ONLY).count() as u64
    }

    /// The trace of `records`, of whose lines those are kept that the header's sampling says.
    ///
    /// # Errors
    /// If a record is malformed or there are more than a trace may hold.
    pub fn from_raw(header: TraceHeader, records: &[u8]) -> Result<Self, RawError> {
        let (records, rest) = records.as_chunks::<RECORD_BYTES>();
        if !rest.is_empty() {
            return Err(RawError::Cut(rest.len()));
        }
        let mut accesses = Vec::new();
        let mut passed = 0;
        for (index, record) in records.iter().enumerate() {
            let record = u64::from_le_bytes(*record);
            passed += (record >> KIND_BITS) & ((1 << INSTRUCTION_BITS) - 1);
            let code = record as u8 & ((1 << KIND_BITS) - 1);
            let line = record >> (KIND_BITS + INSTRUCTION_BITS);
            if code == INSTRUCTIONS_ONLY {
                continue;
            }
            let kind = kind_of(code).ok_or(RawError::Kind { index, code })?;
            if header.sampling.keeps(line) {
                let instructions = u32::try_from(passed).map_err(|_| RawError::Gap { index, instructions: passed })?;
                at_most("number of accesses", accesses.len() as u64 + 1, RECORDS_MAX as u64)?;
                accesses.push(LlcAccess { line, instructions, kind });
                passed = 0;
            }
        }
        Ok(Self { header, accesses })
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::ByteSize;

    use super::super::{PrivateCaches, Sampling};
    use super::*;
    use crate::llc::AccessKind;

    fn header(one_in: u32) -> TraceHeader {
        TraceHeader {
            function: "blur".into(),
            input: String::new(),
            input_bytes: ByteSize(1),
            instructions: 2_000_000,
            whole_instructions: 2_000_000,
            sampling: Sampling::one_in(one_in).unwrap(),
            filter: PrivateCaches::XEON_4210R,
        }
    }

    fn raw(records: &[(u64, u64, u64)]) -> Vec<u8> {
        records.iter().flat_map(|&(line, gap, kind)| (line << 22 | gap << 3 | kind).to_le_bytes()).collect()
    }

    #[test]
    fn instructions_of_records_that_are_not_kept_count_for_the_next_that_is() {
        let long = (1 << 19) - 1;
        let records = raw(&[(22, 5, 1), (23, 7, 2), (0, long, 7), (22 + 64, 9, 4), (22, 1, 0)]);
        let access = |line, instructions, kind| LlcAccess { line, instructions, kind };
        let kept = [
            access(22, 5, AccessKind::Load),
            access(86, 7 + long as u32 + 9, AccessKind::DirtyEviction),
            access(22, 1, AccessKind::Fetch),
        ];
        assert_eq!(Trace::from_raw(header(64), &records).unwrap().accesses, kept);
        assert_eq!(Trace::raw_accesses(&records), 4);
        let all = Trace::from_raw(header(1), &records).unwrap();
        assert_eq!((all.accesses.len(), all.accesses[1]), (4, access(23, 7, AccessKind::Store)));
        assert_eq!(all.thinned(Sampling::one_in(64).unwrap()).unwrap().accesses, kept);
    }

    #[test]
    fn a_cut_file_and_an_unknown_kind_are_refused() {
        let records = raw(&[(1, 1, 1), (2, 1, 5)]);
        assert_eq!(Trace::from_raw(header(1), &records[..7]), Err(RawError::Cut(7)));
        assert_eq!(Trace::from_raw(header(1), &records), Err(RawError::Kind { index: 1, code: 5 }));
    }

    #[test]
    fn a_gap_that_an_access_cannot_carry_is_refused() {
        let mut records = raw(&[(0, (1 << 19) - 1, 7)]).repeat(1 << 14);
        records.extend(raw(&[(1, 1, 1)]));
        assert!(matches!(Trace::from_raw(header(1), &records), Err(RawError::Gap { index: 16384, .. })));
    }
}
