//! What a shard's stream holds for a new home: messages go in by their places, in any order; writes that the store is not
//! known to have come out, and everything that is not as it was written. Pure.
//!
//! Under the new epoch no other home's message can come to stand in the stream, so that what is there up to the epoch's
//! record is all there will be. Streams have no holes but below the place that the last message calls trimmed: another
//! hole is a message that was lost.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use nigh_terms::{Epoch, ShardId, Version};

use super::envelope::{Content, DecodeFailure, EnvelopeRecord, decode};
use super::stream_index::{StreamIndex, object_of};
use crate::commit_format::{Commit, PieceRef};
use crate::journal::{Damage, DamageKind, RecoveredRecord};
use crate::ledger::Record;

/// A write as it was found.
struct FoundCommit {
    place: u64,
    /// Of which message: the home's epoch, and its number under that.
    message: (Epoch, u64),
    commit: Commit,
    inline_bytes: u32,
    whole: bool,
}

/// What is known of a stream while it is read.
pub(super) struct Recovery {
    shard: ShardId,
    stream: String,
    commits: BTreeMap<Version, FoundCommit>,
    /// The length and CRC-32C of each chunk, and whether it is whole.
    chunks: BTreeMap<u64, (u32, u32, bool)>,
    stored: BTreeSet<Version>,
    places: BTreeMap<u64, u64>,
    unreadable: BTreeSet<u64>,
    /// Messages with a body that is not what was written.
    spoiled: BTreeSet<u64>,
    trimmed: u64,
}

/// What was found.
pub(super) struct Outcome {
    pub(super) index: StreamIndex,
    pub(super) records: Vec<RecoveredRecord>,
    /// Every write in the stream, oldest first: these requests were carried out.
    pub(super) answered: Vec<(Record, Version)>,
    pub(super) damage: Vec<Damage>,
}

impl Recovery {
    /// Of the stream called `stream`, whose first place ever was `first`.
    pub(super) fn new(shard: ShardId, stream: &str, first: u64) -> Self {
        Self {
            shard,
            stream: stream.to_owned(),
            commits: BTreeMap::new(),
            chunks: BTreeMap::new(),
            stored: BTreeSet::new(),
            places: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            trimmed: first,
        }
    }

    /// The message at `place` takes so many `bytes` of the stream.
    ///
    /// # Errors
    /// The format of a message that a newer Nigh wrote.
    pub(super) fn take(&mut self, place: u64, bytes: u64, message: &Bytes) -> Result<(), u16> {
        self.places.insert(place, bytes);
        for record in decode(self.shard, message) {
            match record {
                Ok(found) => self.take_record(place, found),
                Err(DecodeFailure::Newer(format)) => return Err(format),
                Err(DecodeFailure::Damaged) => {
                    self.unreadable.insert(place);
                }
            }
        }
        Ok(())
    }

    fn take_record(
        &mut self,
        place: u64,
        EnvelopeRecord { frame, content, body, body_bytes, body_crc }: EnvelopeRecord,
    ) {
        self.trimmed = self.trimmed.max(frame.trimmed);
        if body.is_none() {
            self.spoiled.insert(place);
        }
        match content {
            Content::Epoch(_) => {}
            Content::Stored(versions) => self.stored.extend(versions),
            Content::Chunk => {
                self.chunks.insert(place, (body_bytes, body_crc, body.is_some()));
            }
            Content::Commit(commit) => {
                let (message, whole) = ((frame.epoch, frame.number), body.is_some());
                let found = FoundCommit { place, message, commit: *commit, inline_bytes: body_bytes, whole };
                let version = found.commit.version;
                // Of a write that was copied forward the last copy counts: its chunks are the ones that are kept. Of a message
                // that came to stand twice a whole one does.
                if self.commits.get(&version).is_none_or(|known| (known.message, known.whole) < (message, whole)) {
                    self.commits.insert(version, found);
                }
            }
        }
    }

    /// All before this place was trimmed, as far as is known yet.
    pub(super) const fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// Places from where nothing was trimmed up to `end` of which nothing has come.
    pub(super) fn missing(&self, end: u64) -> Vec<u64> {
        (self.trimmed..end).filter(|place| !self.places.contains_key(place)).collect()
    }

    /// The outcome, if the stream ends with the new epoch's record at `end`.
    pub(super) fn finish(self, end: u64) -> Outcome {
        let damaged = |place: u64, kind| Damage { file: self.stream.clone(), offset: place, kind };
        let mut damage: Vec<Damage> =
            self.missing(end).into_iter().map(|place| damaged(place, DamageKind::Missing)).collect();
        let unreadable = self.unreadable.range(self.trimmed..);
        damage.extend(unreadable.map(|&place| damaged(place, DamageKind::Unknown)));
        let mut index = StreamIndex::new(self.trimmed);
        for place in self.trimmed..=end {
            // One that is missing is as good as known: it holds nothing back.
            index.add(place, self.places.get(&place).copied().unwrap_or(0));
        }
        let (mut records, mut answered) = (Vec::new(), Vec::new());
        for (version, FoundCommit { place, message: _, commit, inline_bytes, whole }) in self.commits {
            answered.push((commit.record.clone(), version));
            let body_bytes =
                u64::from(inline_bytes) + commit.pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>();
            let stored = self.stored.contains(&version) || place < self.trimmed;
            // Chunks of a write that is stored may have been trimmed before it.
            let may_be_gone = |piece: &PieceRef| stored && piece.id.0 < self.trimmed;
            let is_whole = |piece: &PieceRef| self.chunks.get(&piece.id.0) == Some(&(piece.bytes, piece.crc, true));
            let broken = commit.pieces.iter().find(|piece| !is_whole(piece) && !may_be_gone(piece));
            let record = RecoveredRecord { shard: self.shard, version, record: commit.record, body_bytes };
            if place >= self.trimmed && (!whole || broken.is_some()) {
                let at = if whole { broken.map_or(place, |piece| piece.id.0) } else { place };
                damage.push(damaged(at, DamageKind::Record { record: Box::new(record), stored }));
                continue;
            }
            if stored {
                continue;
            }
            index.need_chunks(&commit.pieces);
            index.add_record(version, object_of(&record.record), place, inline_bytes, commit.pieces);
            records.push(record);
        }
        let told: BTreeSet<u64> = damage.iter().map(|one| one.offset).collect();
        let untold = self.spoiled.range(self.trimmed..).filter(|place| !told.contains(place));
        damage.extend(untold.map(|&place| damaged(place, DamageKind::Piece)));
        damage.sort_by_key(|one| one.offset);
        Outcome { index, records, answered, damage }
    }
}

#[cfg(test)]
mod tests;
