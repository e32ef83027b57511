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
mod tests {
    use nigh_terms::{Epoch, Sequence};

    use super::*;

    fn version(sequence: u64) -> Version {
        Version { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    fn object(key: &str) -> ObjectName {
        (Namespace::new("tenant").unwrap(), BucketName::new("bucket").unwrap(), ObjectKey::new(key).unwrap())
    }

    fn chunk(place: u64) -> PieceRef {
        PieceRef { id: PieceId(place), bytes: 10, crc: 0 }
    }

    /// An epoch's record at 1, then so many writes of `key` each, at 2 and on.
    fn index(keys: &[&str]) -> StreamIndex {
        let mut index = StreamIndex::new(1);
        assert!(index.add(1, 100));
        for (at, key) in (2..).zip(keys) {
            assert!(index.add(at, 100));
            index.add_record(version(at), object(key), at, 50, Vec::new());
        }
        index
    }

    #[test]
    fn what_is_stored_goes_with_what_is_older_of_its_object_and_only_a_prefix_is_trimmed() {
        let mut index = index(&["a", "b", "a", "c"]);
        assert_eq!(index.trimmable(), (2, 100));
        assert!(index.stored(version(4)));
        assert_eq!(index.notices, [version(2), version(4)]);
        assert_eq!(index.trimmable(), (3, 200), "b holds the rest back");
        assert_eq!(index.oldest_needed(), Some(version(3)));
        index.trim(3);
        assert_eq!((index.trimmed(), index.bytes()), (3, 300));
        assert!(index.stored(version(3)));
        assert_eq!(index.trimmable(), (5, 200));
        assert!(!index.stored(version(3)), "it is not there any more");
        assert_eq!(index.records(), 1);
    }

    #[test]
    fn a_place_that_is_not_known_holds_the_trim_back_until_it_is() {
        let mut index = index(&["a"]);
        assert!(index.add(5, 100));
        assert!(index.stored(version(2)));
        assert_eq!(index.unknown(), [3, 4]);
        assert_eq!(index.trimmable(), (3, 200));
        assert!(index.add(3, 100) && index.add(4, 100));
        assert!(!index.add(4, 100), "a place is given once");
        assert_eq!((index.unknown(), index.trimmable()), (vec![], (6, 500)));
        index.trim(6);
        assert!(!index.add(4, 100), "nor is one that was trimmed");
    }

    #[test]
    fn chunks_are_needed_until_their_write_is_stored_or_nobody_names_them() {
        let mut index = StreamIndex::new(1);
        for place in 1..=4 {
            assert!(index.add(place, 20));
            index.need_chunks(&[chunk(place)]);
        }
        index.add_piece(PieceId(100), vec![chunk(1), chunk(2)]);
        index.add_piece(PieceId(101), vec![chunk(3)]);
        index.add_piece(PieceId(102), vec![chunk(4)]);
        assert_eq!(index.name_pieces(&[(PieceId(100), 20), (PieceId(7), 10)]), Err(PieceId(7)));
        assert_eq!(index.name_pieces(&[(PieceId(100), 21)]), Err(PieceId(100)));
        let named = index.name_pieces(&[(PieceId(101), 10), (PieceId(100), 20)]).unwrap();
        assert_eq!(named.iter().map(|chunk| chunk.id.0).collect::<Vec<_>>(), [3, 1, 2]);
        assert!(index.add(5, 20));
        index.add_record(version(5), object("a"), 5, 0, named);
        index.release(PieceId(100));
        assert_eq!(index.trimmable().0, 1, "a write names it");
        index.release(PieceId(102));
        let record = index.record(version(5)).unwrap();
        assert_eq!(record.body_bytes(), 30);
        assert_eq!(record.part_at(25), Some((Part::Chunk(chunk(2)), 5)));
        assert_eq!(record.part_at(30), None);
        assert!(index.stored(version(5)));
        assert_eq!(index.trimmable().0, 6);
    }

    #[test]
    fn a_message_is_needed_until_none_of_its_writes_is() {
        let mut index = StreamIndex::new(1);
        assert!(index.add(1, 100));
        for (sequence, key) in (1..).zip(["a", "b"]) {
            index.add_record(version(sequence), object(key), 1, 10, Vec::new());
        }
        assert!(index.stored(version(1)));
        assert_eq!(index.trimmable().0, 1);
        assert!(index.stored(version(2)));
        assert_eq!(index.trimmable().0, 2);
    }

    #[test]
    fn a_copy_frees_the_older_place_and_one_that_comes_too_late_is_not_needed() {
        let mut index = index(&["a", "b"]);
        assert!(index.add(4, 100));
        index.moved(version(2), 4, Vec::new());
        assert_eq!(index.trimmable().0, 3);
        assert!(index.stored(version(3)));
        assert_eq!(index.trimmable().0, 4, "the copy is needed");
        assert!(index.stored(version(2)) && index.add(5, 100));
        index.moved(version(2), 5, Vec::new());
        assert_eq!(index.trimmable().0, 6);
    }

    #[test]
    fn a_write_that_was_sent_again_is_named_for_as_long_as_a_copy_may_come() {
        let mut index = index(&["a", "b"]);
        index.sent_again(version(2));
        assert_eq!(index.resent_and_stored().count(), 0);
        assert!(index.stored(version(2)));
        index.notices.clear();
        index.trim(3);
        assert_eq!(index.resent_and_stored().collect::<Vec<_>>(), [version(2)]);
    }
}
