//! The parsers of servers' answers, for the fuzz target.

use bytes::Bytes;
use nigh_terms::ShardId;

use super::document_format::{self, Document};
use super::recovery::{Outcome, Recovery};
use crate::journal::{Damage, RecoveredRecord};

/// Recovers shard 0 from a stream with these messages from place 1 on, and the record of the new epoch after them. None
/// if a message has a newer format version.
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

/// The number of chunks and the length of a document's value; none if the message is damaged.
#[must_use]
pub fn document(message: &Bytes) -> Option<(u64, u64)> {
    match document_format::decode(message).ok()? {
        Document::Deleted => Some((0, 0)),
        Document::Inline(value) => Some((0, value.len() as u64)),
        Document::Chunked(head) => Some((u64::from(head.chunks), head.bytes)),
    }
}
