//! What of a shard's stream is still needed: writes that the store does not hold, parts of bodies that somebody may yet
//! name, and up to where all before may go. Pure; callers hold a lock around it.
//!
//! A stream has no holes but where it was trimmed, so that a place which is not known here holds the trim back: it may be
//! a second copy of a message that was sent again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use nigh_terms::{BucketName, Namespace, ObjectKey, Version};

use crate::commit_format::PieceRef;
use crate::ledger::{PieceId, Record};

/// An object of the shard.
pub(super) type ObjectName = (Namespace, BucketName, ObjectKey);

/// The places that are told to hold the trim back, at a time.
const UNKNOWN_MAX: usize = 64;

/// The name of `record`'s object.
pub(super) fn object_of(record: &Record) -> ObjectName {
    (record.namespace.clone(), record.bucket.clone(), record.key.clone())
}

/// A message in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    bytes: u64,
    /// The writes and chunks in it that somebody needs.
    needed: u32,
}

/// A write that the store is not known to hold.
#[derive(Debug)]
pub(super) struct LiveRecord {
    object: Arc<ObjectName>,
    /// Where it stands in the stream.
    pub(super) place: u64,
    /// The length of the body in the message itself.
    pub(super) inline_bytes: u32,
    /// The chunks of its body, by their places in the stream.
    pub(super) chunks: Box<[PieceRef]>,
}

/// Where a part of a body stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// In the message of the write itself.
    Inline,
    /// In a chunk.
    Chunk(PieceRef),
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct StreamIndex {
    trimmed: u64,
    slots: BTreeMap<u64, Slot>,
    bytes: u64,
    records: BTreeMap<Version, LiveRecord>,
    objects: HashMap<Arc<ObjectName>, Vec<Version>>,
    pieces: HashMap<PieceId, Box<[PieceRef]>>,
    /// What no message says to be stored yet, though it is.
    pub(super) notices: VecDeque<Version>,
    /// Writes that were sent more than once and are stored: a second copy may come to stand behind the message that said
    /// so, and is named again each time the stream is trimmed.
    resent: BTreeSet<Version>,
}

impl StreamIndex {
    /// An index of a stream that was trimmed up to `trimmed`.
    pub(super) fn new(trimmed: u64) -> Self {
        Self { trimmed, ..Self::default() }
    }

    /// All before this place is gone, or may be.
    pub(super) const fn trimmed(&self) -> u64 {
        self.trimmed
    }

    /// What the messages take in the stream.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last place that is known.
    pub(super) fn last(&self) -> Option<u64> {
        self.slots.last_key_value().map(|(&place, _)| place)
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    /// A message stands at `place`. False if that place was known already.
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

    /// Somebody may name these chunks, or names them.
    pub(super) fn need_chunks(&mut self, chunks: &[PieceRef]) {
        chunks.iter().for_each(|chunk| self.need(chunk.id.0));
    }

    /// A piece stands in these chunks, which are needed, and nobody names it yet.
    pub(super) fn add_piece(&mut self, id: PieceId, chunks: Vec<PieceRef>) {
        self.pieces.insert(id, chunks.into_boxed_slice());
    }

    /// The chunks of these pieces in their order, named from now on; or the first that is not there with so
    /// many bytes.
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

    /// Nobody will name this piece.
    pub(super) fn release(&mut self, id: PieceId) {
        if let Some(chunks) = self.pieces.remove(&id) {
            self.release_chunks(&chunks);
        }
    }

    /// Nobody needs these chunks.
    pub(super) fn release_chunks(&mut self, chunks: &[PieceRef]) {
        for chunk in chunks {
            self.done(chunk.id.0);
        }
    }

    /// A write stands at `place`. It is there once, however often it was sent.
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

    /// A copy of a write, and of its chunks, stands at `place`: the older is not needed.
    pub(super) fn moved(&mut self, version: Version, place: u64, chunks: Vec<PieceRef>) {
        let Some(record) = self.records.get_mut(&version) else {
            // The store has it meanwhile.
            self.release_chunks(&chunks);
            return;
        };
        let from = std::mem::replace(&mut record.place, place);
        let old = std::mem::replace(&mut record.chunks, chunks.into_boxed_slice());
        self.need(place);
        self.done(from);
        self.release_chunks(&old);
    }

    /// This write was sent more than once.
    pub(super) fn sent_again(&mut self, version: Version) {
        self.resent.insert(version);
    }

    pub(super) fn record(&self, version: Version) -> Option<&LiveRecord> {
        self.records.get(&version)
    }

    /// The store holds `version`: it and the older ones of its object are not needed any more, oldest first.
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

    /// Up to where all messages are known and none is needed, and the bytes that they take.
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

    /// The bytes of messages that nobody needs.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.slots.values().filter(|slot| slot.needed == 0).map(|slot| slot.bytes).sum()
    }

    /// The versions that a message must name before the stream is trimmed, beside the notices.
    pub(super) fn resent_and_stored(&self) -> impl Iterator<Item = Version> + '_ {
        self.resent.iter().copied().filter(|version| !self.records.contains_key(version))
    }

    /// All before `place` goes.
    pub(super) fn trim(&mut self, place: u64) {
        let kept = self.slots.split_off(&place);
        let gone = std::mem::replace(&mut self.slots, kept);
        self.bytes -= gone.values().map(|slot| slot.bytes).sum::<u64>();
        self.trimmed = self.trimmed.max(place);
    }

    /// Places before the last known one that are not known.
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

    /// The write that holds the trim back: where the first needed message is one's, or a chunk of one's.
    pub(super) fn oldest_needed(&self) -> Option<Version> {
        let place = self.slots.iter().find(|(_, slot)| slot.needed > 0).map(|(&place, _)| place)?;
        let stands = |record: &LiveRecord| record.place == place || record.chunks.iter().any(|one| one.id.0 == place);
        self.records.iter().find(|(_, record)| stands(record)).map(|(&version, _)| version)
    }
}

impl LiveRecord {
    /// The length of its body.
    pub(super) fn body_bytes(&self) -> u64 {
        u64::from(self.inline_bytes) + self.chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>()
    }

    /// The part of its body in which `offset` lies, and how much of it is before that; none at its end.
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
