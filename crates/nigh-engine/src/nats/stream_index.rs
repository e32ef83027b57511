//! The index of what a shard's stream still needs: writes that the store does not have, chunks of bodies that a write
//! may name, and the place up to which all messages may be trimmed. Pure; callers hold a lock around it.
//!
//! A stream has no holes except where it was trimmed. So a place that the index does not know blocks the trim: it may
//! be a second copy of a repeated message.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use nigh_terms::{BucketName, Namespace, ObjectKey, Version};

use crate::commit_format::PieceRef;
use crate::ledger::{PieceId, Record};

/// An object of the shard.
pub(super) type ObjectName = (Namespace, BucketName, ObjectKey);

/// The most unknown places that are reported at a time.
const UNKNOWN_MAX: usize = 64;

/// The object of `record`.
pub(super) fn object_of(record: &Record) -> ObjectName {
    (record.namespace.clone(), record.bucket.clone(), record.key.clone())
}

/// A message in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    bytes: u64,
    /// Number of writes and chunks in the message that are needed.
    needed: u32,
}

/// A write that the store is not known to have.
#[derive(Debug)]
pub(super) struct LiveRecord {
    object: Arc<ObjectName>,
    /// The place of its message in the stream.
    pub(super) place: u64,
    /// The bytes of the body in the message itself.
    pub(super) inline_bytes: u32,
    /// The chunks of its body.
    pub(super) chunks: Box<[PieceRef]>,
}

/// The location of a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// In the message of the write itself.
    Inline,
    /// In this chunk.
    Chunk(PieceRef),
}

/// The index of a shard's stream.
#[derive(Debug, Default)]
pub(super) struct StreamIndex {
    trimmed: u64,
    slots: BTreeMap<u64, Slot>,
    bytes: u64,
    records: BTreeMap<Version, LiveRecord>,
    objects: HashMap<Arc<ObjectName>, Vec<Version>>,
    pieces: HashMap<PieceId, Box<[PieceRef]>>,
    /// Stored versions that no message records yet.
    pub(super) notices: VecDeque<Version>,
    /// Writes that were sent more than once and are stored. A second copy may appear after the message that recorded
    /// them, so they are named again at each trim.
    resent: BTreeSet<Version>,
}

impl StreamIndex {
    /// An index of a stream that was trimmed up to `trimmed`.
    pub(super) fn new(trimmed: u64) -> Self {
        Self { trimmed, ..Self::default() }
    }

    /// The place before which all messages are removed, or may be.
    pub(super) const fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// The bytes of the messages in the stream.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last known place.
    pub(super) fn last(&self) -> Option<u64> {
        self.slots.last_key_value().map(|(&place, _)| place)
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    /// Adds the message at `place`. False if the place was known already.
    pub(super) fn add(&mut self, place: u64, bytes: u64) -> bool {
        if place < self.trimmed || self.slots.contains_key(&place) {
            return false;
        }
        self.slots.insert(place, Slot { bytes, needed: 0 });
        self.bytes += bytes;
        true
    }

    fn need(&mut self, place: u64) {
        if let Some(slot) = self.slots.get_mut(&place) {
            slot.needed += 1;
        }
    }

    fn done(&mut self, place: u64) {
        if let Some(slot) = self.slots.get_mut(&place) {
            slot.needed = slot.needed.saturating_sub(1);
        }
    }

    /// Marks these chunks as needed: a write may name them.
    pub(super) fn need_chunks(&mut self, chunks: &[PieceRef]) {
        chunks.iter().for_each(|chunk| self.need(chunk.id.0));
    }

    /// Adds a piece in these chunks, which are needed, although no write names the piece yet.
    pub(super) fn add_piece(&mut self, id: PieceId, chunks: Vec<PieceRef>) {
        self.pieces.insert(id, chunks.into_boxed_slice());
    }

    /// The chunks of these pieces in order, which a write names from now on. The error is the first piece that is not
    /// there with this length.
    pub(super) fn name_pieces(&mut self, pieces: &[(PieceId, u64)]) -> Result<Vec<PieceRef>, PieceId> {
        let bytes = |chunks: &[PieceRef]| chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>();
        for (id, expected) in pieces {
            self.pieces.get(id).filter(|chunks| bytes(chunks) == *expected).ok_or(*id)?;
        }
        let mut named = Vec::new();
        for (id, _) in pieces {
            named.extend(self.pieces.remove(id).ok_or(*id)?);
        }
        Ok(named)
    }

    /// Releases a piece that no write will name.
    pub(super) fn release(&mut self, id: PieceId) {
        if let Some(chunks) = self.pieces.remove(&id) {
            self.release_chunks(&chunks);
        }
    }

    /// Releases these chunks.
    pub(super) fn release_chunks(&mut self, chunks: &[PieceRef]) {
        for chunk in chunks {
            self.done(chunk.id.0);
        }
    }

    /// Adds the write at `place`. It is added once, however often it was sent.
    pub(super) fn add_record(
        &mut self,
        version: Version,
        object: ObjectName,
        place: u64,
        inline_bytes: u32,
        chunks: Vec<PieceRef>,
    ) {
        self.need(place);
        let object = Arc::new(object);
        let versions = self.objects.entry(Arc::clone(&object)).or_default();
        let at = versions.partition_point(|&known| known < version);
        versions.insert(at, version);
        self.records.insert(version, LiveRecord { object, place, inline_bytes, chunks: chunks.into_boxed_slice() });
    }

    /// A copy of a write, and of its chunks, is at `place`: the older copy is not needed.
    pub(super) fn moved(&mut self, version: Version, place: u64, chunks: Vec<PieceRef>) {
        let Some(record) = self.records.get_mut(&version) else {
            // The store has got the write meanwhile.
            self.release_chunks(&chunks);
            return;
        };
        let from = std::mem::replace(&mut record.place, place);
        let old = std::mem::replace(&mut record.chunks, chunks.into_boxed_slice());
        self.need(place);
        self.done(from);
        self.release_chunks(&old);
    }

    /// Records that this write was sent more than once.
    pub(super) fn sent_again(&mut self, version: Version) {
        self.resent.insert(version);
    }

    pub(super) fn record(&self, version: Version) -> Option<&LiveRecord> {
        self.records.get(&version)
    }

    /// The store has `version`: it and the older ones of its object are not needed any more. Adds the notices oldest
    /// first.
    pub(super) fn stored(&mut self, version: Version) -> bool {
        let Some(object) = self.records.get(&version).map(|record| Arc::clone(&record.object)) else { return false };
        let Some(versions) = self.objects.get_mut(&object) else { return false };
        let newer = versions.split_off(versions.partition_point(|&known| known <= version));
        let done = std::mem::replace(versions, newer);
        if versions.is_empty() {
            self.objects.remove(&object);
        }
        for version in done {
            if let Some(record) = self.records.remove(&version) {
                self.done(record.place);
                self.release_chunks(&record.chunks);
            }
            self.notices.push_back(version);
        }
        true
    }

    /// The place up to which all messages are known and not needed, and their bytes.
    pub(super) fn trimmable(&self) -> (u64, u64) {
        let (mut end, mut bytes) = (self.trimmed, 0);
        for (&place, slot) in &self.slots {
            if place != end || slot.needed > 0 {
                break;
            }
            end += 1;
            bytes += slot.bytes;
        }
        (end, bytes)
    }

    /// The bytes of messages that are not needed.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.slots.values().filter(|slot| slot.needed == 0).map(|slot| slot.bytes).sum()
    }

    /// The versions that a message must name before the stream is trimmed, in addition to the notices.
    pub(super) fn resent_and_stored(&self) -> impl Iterator<Item = Version> + '_ {
        self.resent.iter().copied().filter(|version| !self.records.contains_key(version))
    }

    /// Removes everything before `place`.
    pub(super) fn trim(&mut self, place: u64) {
        let kept = self.slots.split_off(&place);
        let gone = std::mem::replace(&mut self.slots, kept);
        self.bytes -= gone.values().map(|slot| slot.bytes).sum::<u64>();
        self.trimmed = self.trimmed.max(place);
    }

    /// The unknown places before the last known one.
    pub(super) fn unknown(&self) -> Vec<u64> {
        let mut expected = self.trimmed;
        let mut unknown = Vec::new();
        for &place in self.slots.keys() {
            unknown.extend((expected..place).take(UNKNOWN_MAX - unknown.len()));
            if unknown.len() == UNKNOWN_MAX {
                break;
            }
            expected = place + 1;
        }
        unknown
    }

    /// The write that blocks the trim: the first needed message is its own, or a chunk of it.
    pub(super) fn oldest_needed(&self) -> Option<Version> {
        let place = self.slots.iter().find(|(_, slot)| slot.needed > 0).map(|(&place, _)| place)?;
        let stands = |record: &LiveRecord| record.place == place || record.chunks.iter().any(|one| one.id.0 == place);
        self.records.iter().find(|(_, record)| stands(record)).map(|(&version, _)| version)
    }
}

impl LiveRecord {
    /// The length of the write's body in bytes.
    pub(super) fn body_bytes(&self) -> u64 {
        u64::from(self.inline_bytes) + self.chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>()
    }

    /// The part of the body at `offset`, and the bytes of that part before `offset`; none at the body's end.
    pub(super) fn part_at(&self, offset: u64) -> Option<(Part, u64)> {
        if self.chunks.is_empty() {
            return (offset < u64::from(self.inline_bytes)).then_some((Part::Inline, offset));
        }
        let mut start = 0;
        for chunk in &self.chunks {
            let end = start + u64::from(chunk.bytes);
            if (start..end).contains(&offset) {
                return Some((Part::Chunk(*chunk), offset - start));
            }
            start = end;
        }
        None
    }
}

#[cfg(test)]
mod tests;
