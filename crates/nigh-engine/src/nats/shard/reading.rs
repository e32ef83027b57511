//! Reads bodies from the stream, and returns only undamaged ones.

use bytes::Bytes;
use nigh_terms::Version;

use super::super::envelope::{Content, EnvelopeRecord, decode};
use super::super::stream_index::Part;
use super::Shard;
use crate::commit_format::{Commit, PieceRef};
use crate::ledger::LedgerError;

/// The attempts to read a message that is missing or damaged: another server may be the leader at the next.
const TRIES: usize = 3;

impl Shard {
    /// The bytes of a body from `offset` to the end of the part there.
    pub(in super::super) async fn read(&self, version: Version, offset: u64) -> Result<Bytes, LedgerError> {
        let mut tries = 0;
        loop {
            let (place, part, skip) = {
                let state = self.state.lock();
                let record = state.index.record(version).ok_or(LedgerError::Unknown(version))?;
                let Some((part, skip)) = record.part_at(offset) else { return Ok(Bytes::new()) };
                let place = if let Part::Chunk(chunk) = part { chunk.id.0 } else { record.place };
                (place, part, skip as usize)
            };
            if let Some(body) = self.part(version, place, part).await? {
                return Ok(body.slice(skip.min(body.len())..));
            }
            tries += 1;
            if tries == TRIES {
                return Err(LedgerError::Damaged { version, file: self.stream.clone(), offset: place });
            }
        }
    }

    /// The part of a body in the message at `place`, if it is undamaged.
    pub(super) async fn part(&self, version: Version, place: u64, part: Part) -> Result<Option<Bytes>, LedgerError> {
        let is_it = |found: &EnvelopeRecord| match (part, &found.content) {
            (Part::Inline, Content::Commit(commit)) => commit.version == version,
            (Part::Chunk(PieceRef { bytes, crc, .. }), Content::Chunk) => {
                (found.body_bytes, found.body_crc) == (bytes, crc)
            }
            _ => false,
        };
        Ok(self.found(place).await?.into_iter().find(is_it).and_then(|found| found.body))
    }

    /// The write of `version` in the message at `place`, with its inline body.
    pub(super) async fn commit_at(&self, version: Version, place: u64) -> Result<Option<(Commit, Bytes)>, LedgerError> {
        let found = self.found(place).await?.into_iter().find_map(|found| match found {
            EnvelopeRecord { content: Content::Commit(commit), body: Some(body), .. } if commit.version == version => {
                Some((*commit, body))
            }
            _ => None,
        });
        Ok(found)
    }

    /// The records of the message at `place` with undamaged heads.
    pub(super) async fn found(&self, place: u64) -> Result<Vec<EnvelopeRecord>, LedgerError> {
        let message = self.cluster.message(&self.stream, place).await;
        let message = message.map_err(|error| LedgerError::Unavailable(error.to_string()))?;
        let records = message.map(|message| decode(self.id, &message)).unwrap_or_default();
        Ok(records.into_iter().filter_map(Result::ok).collect())
    }
}
