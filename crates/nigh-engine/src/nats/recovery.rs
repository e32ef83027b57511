//! Recovers a shard for a new home: from the messages of the stream, in any order, it finds the writes that the store may
//! lack, and all damage. Pure.
//! After the new epoch's record no other home can append, so the stream up to that record is complete. A stream has
//! holes only before the place up to which its last message says that it was trimmed; any other hole is a lost message.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use nigh_terms::{Epoch, ShardId, Version};

use super::envelope::{Content, DecodeFailure, EnvelopeRecord, decode};
use super::stream_index::{StreamIndex, object_of};
use crate::commit_format::{Commit, PieceRef};
use crate::journal::{Damage, DamageKind, RecoveredRecord};
use crate::ledger::Record;

/// A write in the stream.
struct FoundCommit {
    place: u64,
    /// The epoch of its message, and the message's number within the epoch.
    message: (Epoch, u64),
    commit: Commit,
    inline_bytes: u32,
    whole: bool,
}

/// The state of reading a stream.
pub(super) struct Recovery {
    shard: ShardId,
    stream: String,
    commits: BTreeMap<Version, FoundCommit>,
    /// The length and CRC-32C of each chunk, and whether it is whole.
    chunks: BTreeMap<u64, (u32, u32, bool)>,
    stored: BTreeSet<Version>,
    places: BTreeMap<u64, u64>,
    unreadable: BTreeSet<u64>,
    /// The places of messages with a damaged body.
    spoiled: BTreeSet<u64>,
    trimmed: u64,
}

/// The outcome.
pub(super) struct Outcome {
    pub(super) index: StreamIndex,
    pub(super) records: Vec<RecoveredRecord>,
    /// Every write in the stream, oldest first.
    pub(super) answered: Vec<(Record, Version)>,
    pub(super) damage: Vec<Damage>,
}

impl Recovery {
    /// Begins reading the stream `stream`, whose first place ever was `first`.
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

    /// Adds the length of the message at `place`.
    ///
    /// # Errors
    /// The format of a message of a newer Nigh.
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
                // If a write was copied forward, its last copy counts, because that copy's chunks are kept. If a
                // message is in the stream twice, an undamaged one counts.
                if self.commits.get(&version).is_none_or(|known| (known.message, known.whole) < (message, whole)) {
                    self.commits.insert(version, found);
                }
            }
        }
    }

    /// The place before which messages were trimmed or are not needed.
    pub(super) const fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// Missing places from the trim up to `end`.
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
            // A missing message gets a length of 0.
            index.add(place, self.places.get(&place).copied().unwrap_or(0));
        }
        let (mut records, mut answered) = (Vec::new(), Vec::new());
        for (version, FoundCommit { place, message: _, commit, inline_bytes, whole }) in self.commits {
            answered.push((commit.record.clone(), version));
            let body_bytes =
                u64::from(inline_bytes) + commit.pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>();
            let stored = self.stored.contains(&version) || place < self.trimmed;
            // Chunks of a stored write may have been trimmed before it.
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
