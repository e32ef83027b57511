//! Finds the records of one segment, also after damage. Pure.
//!
//! A segment is reused without being zeroed, and a process may end in the middle of a batch. So after the valid records
//! there may be records of an earlier use, which have another generation and salt and are ignored, and records of an
//! earlier epoch, which `recovery` distinguishes. A partly overwritten record has a damaged body, whose length is not
//! trusted: newer records may be within it.

use super::format::{DecodedRecord, FIRST_RECORD, HEAD_BYTES, SegmentHeader, aligned, begins, decode, next_sector};
use crate::commit_format::crc32c;

/// A record, and whether its body is undamaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScannedRecord {
    pub(super) found: DecodedRecord,
    pub(super) whole: bool,
}

/// The records of a segment.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The records, in the order of their places.
    pub(super) records: Vec<ScannedRecord>,
    /// The offset of a damaged record that no undamaged one follows.
    pub(super) begun: Option<u32>,
}

/// The records in `segment`, the bytes of a file with this header.
pub(super) fn scan(segment: &[u8], header: &SegmentHeader) -> Scan {
    let mut result = Scan::default();
    let mut at = FIRST_RECORD;
    loop {
        let near = [aligned(at), next_sector(at)];
        let here = |offset: u32| decode(segment, header, offset);
        let next = near.into_iter().find_map(here).or_else(|| {
            let last = (header.records_end() as usize).min(segment.len()).saturating_sub(HEAD_BYTES as usize) as u32;
            (aligned(at)..=last).step_by(8).find_map(here)
        });
        let Some(found) = next else {
            result.begun = near.into_iter().find(|&offset| begins(segment, header, offset));
            return result;
        };
        let body_at = found.frame.position.offset() + found.head_bytes;
        let body = segment.get(body_at as usize..found.end() as usize);
        let whole = body.is_some_and(|body| crc32c(body) == found.body.crc);
        at = if whole { found.end() } else { body_at };
        result.records.push(ScannedRecord { found, whole });
    }
}
