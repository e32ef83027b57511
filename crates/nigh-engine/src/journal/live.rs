//! The index of what the journal still needs: unpushed records, pieces that a record may still name, and their bytes in
//! each segment. No I/O; callers hold a lock around it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId, Version};

use super::disk::SegmentFile;
use super::format::{BodyRef, DecodedRecord, Position, aligned};
use super::prepare::PreparedSegment;
use crate::commit_format::PieceRef;
use crate::ledger::PieceId;

/// An object, as records name it.
pub(super) type ObjectName = (ShardId, Namespace, BucketName, ObjectKey);

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) position: Position,
    pub(super) head_bytes: u32,
    pub(super) body: BodyRef,
}

impl Place {
    pub(super) const fn of(found: &DecodedRecord) -> Self {
        Self { position: found.frame.position, head_bytes: found.head_bytes, body: found.body }
    }

    /// The bytes that the record takes.
    pub(super) fn room(&self) -> u64 {
        u64::from(aligned(self.head_bytes + self.body.bytes))
    }

    /// The offset of the record's body.
    pub(super) fn body_at(&self) -> u64 {
        u64::from(self.position.offset()) + u64::from(self.head_bytes)
    }
}

/// An unpushed record.
#[derive(Debug)]
pub(super) struct LiveRecord {
    pub(super) object: Arc<ObjectName>,
    pub(super) place: Place,
    pub(super) pieces: Box<[PieceRef]>,
}

#[derive(Debug)]
struct LivePiece {
    place: Place,
    named: bool,
}

/// A segment in use, with its needed bytes.
pub(super) struct Segment {
    pub(super) generation: u64,
    pub(super) name: String,
    pub(super) file: Arc<dyn SegmentFile>,
    /// The file's length in bytes.
    pub(super) bytes: u32,
    pub(super) needed_bytes: u64,
    /// True once a record could not be copied out of the segment, which then waits for the store.
    pub(super) unmovable: bool,
}

/// A record or piece that can be copied forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Piece(PieceId),
    Record(Version),
}

/// The index of needed records and pieces.
#[derive(Default)]
pub(super) struct LiveIndex {
    /// Oldest first; the last segment is being written.
    pub(super) segments: VecDeque<Segment>,
    records: BTreeMap<Version, LiveRecord>,
    pieces: HashMap<PieceId, LivePiece>,
    objects: HashMap<Arc<ObjectName>, Vec<Version>>,
    body_bytes: u64,
    /// Stored versions that no notice records yet. They share the lock with the rest: a reader that finds a segment
    /// unneeded also finds these.
    pub(super) notices: VecDeque<Version>,
}

impl LiveIndex {
    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    /// The bytes of the bodies of all records.
    pub(super) const fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    pub(super) fn record(&self, version: Version) -> Option<&LiveRecord> {
        self.records.get(&version)
    }

    /// All needed records.
    #[cfg(test)]
    pub(super) fn versions(&self) -> Vec<Version> {
        self.records.keys().copied().collect()
    }

    pub(super) fn piece(&self, id: PieceId) -> Option<Place> {
        self.pieces.get(&id).map(|piece| piece.place)
    }

    pub(super) fn segment(&self, generation: u64) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&generation, |segment| segment.generation).ok()?;
        self.segments.get(at)
    }

    pub(super) fn segment_mut(&mut self, generation: u64) -> Option<&mut Segment> {
        let at = self.segments.binary_search_by_key(&generation, |segment| segment.generation).ok()?;
        self.segments.get_mut(at)
    }

    fn take_room(&mut self, place: &Place) {
        if let Some(segment) = self.segment_mut(place.position.generation()) {
            segment.needed_bytes += place.room();
        }
    }

    fn free_room(&mut self, place: &Place) {
        if let Some(segment) = self.segment_mut(place.position.generation()) {
            segment.needed_bytes -= place.room();
        }
    }

    /// Adds a piece that is being written.
    pub(super) fn add_piece(&mut self, id: PieceId, place: Place) {
        self.take_room(&place);
        self.pieces.insert(id, LivePiece { place, named: false });
    }

    /// True if `piece` is in the journal and no record names it.
    pub(super) fn is_unnamed(&self, piece: &PieceRef) -> bool {
        let fits =
            |found: &LivePiece| !found.named && found.place.body == BodyRef { bytes: piece.bytes, crc: piece.crc };
        self.pieces.get(&piece.id).is_some_and(fits)
    }

    /// Binds pieces to the record that names them.
    pub(super) fn name_pieces(&mut self, pieces: &[PieceRef]) {
        for piece in pieces {
            if let Some(found) = self.pieces.get_mut(&piece.id) {
                found.named = true;
            }
        }
    }

    /// Frees a piece that no record will name.
    pub(super) fn release(&mut self, id: PieceId) {
        if self.pieces.get(&id).is_some_and(|piece| !piece.named) {
            self.remove_piece(id);
        }
    }

    fn remove_piece(&mut self, id: PieceId) {
        if let Some(piece) = self.pieces.remove(&id) {
            self.free_room(&piece.place);
        }
    }

    /// Adds a record.
    pub(super) fn add_record(&mut self, version: Version, object: ObjectName, place: Place, pieces: Vec<PieceRef>) {
        self.take_room(&place);
        self.name_pieces(&pieces);
        let object = Arc::new(object);
        let versions = self.objects.entry(Arc::clone(&object)).or_default();
        let at = versions.partition_point(|&known| known < version);
        versions.insert(at, version);
        let record = LiveRecord { object, place, pieces: pieces.into_boxed_slice() };
        self.body_bytes += record.body_bytes();
        self.records.insert(version, record);
    }

    /// The store has `version`: it and older versions of its object are not needed any more. Adds the notices oldest
    /// first, so that a notice of a newer version is never alone.
    pub(super) fn stored(&mut self, version: Version) -> Vec<Version> {
        let Some(object) = self.records.get(&version).map(|record| Arc::clone(&record.object)) else {
            return Vec::new();
        };
        let Some(versions) = self.objects.get_mut(&object) else { return Vec::new() };
        let newer = versions.split_off(versions.partition_point(|&known| known <= version));
        let done = std::mem::replace(versions, newer);
        if versions.is_empty() {
            self.objects.remove(&object);
        }
        for version in &done {
            if let Some(record) = self.records.remove(version) {
                self.free_room(&record.place);
                self.body_bytes -= record.body_bytes();
                for piece in &record.pieces {
                    self.remove_piece(piece.id);
                }
            }
        }
        done
    }

    /// The needed records and pieces of `generation`.
    pub(super) fn movable(&self, generation: u64) -> Vec<(Item, Place)> {
        let pieces = self.pieces.iter().map(|(&id, piece)| (Item::Piece(id), piece.place));
        let records = self.records.iter().map(|(&version, record)| (Item::Record(version), record.place));
        pieces.chain(records).filter(|(_, place)| place.position.generation() == generation).collect()
    }

    /// Notes a durable copy at `to`.
    pub(super) fn moved(&mut self, item: Item, to: Place) {
        let place = match item {
            Item::Piece(id) => self.pieces.get_mut(&id).map(|piece| &mut piece.place),
            Item::Record(version) => self.records.get_mut(&version).map(|record| &mut record.place),
        };
        // If the record is no longer needed, neither is its copy.
        if let Some(place) = place {
            let from = std::mem::replace(place, to);
            self.free_room(&from);
            self.take_room(&to);
        }
    }
}

impl Segment {
    pub(super) fn new(ready: &PreparedSegment) -> Self {
        let PreparedSegment { name, file, header } = ready;
        Self {
            generation: header.generation,
            name: name.clone(),
            file: Arc::clone(file),
            bytes: header.bytes,
            needed_bytes: 0,
            unmovable: false,
        }
    }
}

impl LiveRecord {
    /// The length of the record's body in bytes.
    pub(super) fn body_bytes(&self) -> u64 {
        u64::from(self.place.body.bytes) + self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>()
    }
}
