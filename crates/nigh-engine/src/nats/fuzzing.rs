//! What the fuzz target reaches: the parsers of what servers give, which are for nobody else.

use bytes::Bytes;
use nigh_terms::ShardId;

use super::document_format::{self, Document};
use super::recovery::{Outcome, Recovery};
use crate::journal::{Damage, RecoveredRecord};

/// What a home that takes shard 0 makes of a stream that has these messages, the first of them at place 1, and behind them
/// its epoch's record. None if one is of a newer format.
#[must_use]
pub fn recover(messages: &[Bytes]) -> Option<(Vec<RecoveredRecord>, Vec<Damage>)> {
    let mut recovery = Recovery::new(ShardId(0), "stream", 1);
    for (at, message) in messages.iter().enumerate().rev() {
        recovery.take(at as u64 + 1, message.len() as u64, message).ok()?;
    }
    let end = messages.len() as u64 + 1;
    let Outcome { records, damage, .. } = recovery.finish(end);
    Some((records, damage))
}

/// The chunks and the length of the value that a document's message tells of; none if it is not believed.
#[must_use]
pub fn document(message: &Bytes) -> Option<(u64, u64)> {
    match document_format::decode(message).ok()? {
        Document::Deleted => Some((0, 0)),
        Document::Inline(value) => Some((0, value.len() as u64)),
        Document::Chunked(head) => Some((u64::from(head.chunks), head.bytes)),
    }
}
