//! The end of the journal: gathers records, writes them by one call, and syncs them. Records are written in the order
//! of `append`. Each head names the place up to which everything is durable; recovery relies on that.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use nigh_terms::Epoch;

use super::disk::SegmentFile;
use super::format::{
    BodyRef, ContentRef, FIRST_RECORD, Frame, Position, SegmentHeader, aligned, encode, encode_copy, head_bytes,
    next_sector,
};
use super::live::Place;
use super::prepare::PreparedSegment;

/// Writes from this length on, in bytes, are started on the disk at once.
const BEGIN_MIN_BYTES: u32 = 256 << 10;
/// Zeros between records.
const PAD: [u8; 8] = [0; 8];

/// A write or a sync failed: the content of the disk is unknown.
#[derive(Clone, Debug)]
pub(super) struct Fault(pub(super) String);

impl Fault {
    pub(super) fn of(what: &str, name: &str) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{what} {name} failed");
        move |error| Self(format!("{what}: {error}"))
    }
}

enum Part {
    Head(Range<usize>),
    Body(Bytes),
    Pad(usize),
}

/// The segment that is written to.
pub(super) struct ActiveSegment {
    pub(super) name: String,
    pub(super) file: Arc<dyn SegmentFile>,
    pub(super) header: SegmentHeader,
    /// The offset of the next record.
    pub(super) at: u32,
}

pub(super) struct Tail {
    active: ActiveSegment,
    life: Epoch,
    /// The position of the last written record.
    last: Position,
    /// The end of that record.
    end: Position,
    /// The position up to which everything is on the disk.
    durable: Position,
    /// The place up to which all was on the disk when the last record was made, as that record says.
    told_durable: Position,
    /// The last record whose loss must be noticed.
    to_cover: Position,
    heads: Vec<u8>,
    parts: Vec<Part>,
    /// The offset at which `parts` begin.
    parts_at: u32,
    /// Former segments that are not synced yet.
    behind: Vec<(String, Arc<dyn SegmentFile>)>,
    is_unsynced: bool,
    /// The appended bytes, including heads and zeros.
    appended_bytes: u64,
}

impl Tail {
    /// A tail in `active`, after `last`; everything up to `last` is on the disk.
    pub(super) fn new(active: ActiveSegment, life: Epoch, last: Position) -> Self {
        let here = Position::new(active.header.generation, active.at);
        Self {
            parts_at: active.at,
            active,
            life,
            last,
            end: here,
            durable: here,
            told_durable: here,
            to_cover: Position::START,
            heads: Vec::new(),
            parts: Vec::new(),
            behind: Vec::new(),
            is_unsynced: false,
            appended_bytes: 0,
        }
    }

    /// The generation of the current segment.
    pub(super) const fn generation(&self) -> u64 {
        self.active.header.generation
    }

    /// The place of the next record.
    pub(super) const fn next(&self) -> Position {
        Position::new(self.active.header.generation, self.active.at)
    }

    /// The bytes left in the segment.
    pub(super) const fn left(&self) -> u32 {
        self.active.header.records_end().saturating_sub(self.active.at)
    }

    /// The bytes that were appended to any segment.
    pub(super) const fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// The bytes of the segment that are used.
    pub(super) const fn used(&self) -> u32 {
        self.active.at
    }

    /// Whether a later record says that the last write was on the disk. Until then, recovery takes a damaged last write for
    /// one that a crash cut off.
    pub(super) fn is_covered(&self) -> bool {
        self.to_cover < self.told_durable
    }

    /// The loss of the last record must be noticed, whatever it is.
    pub(super) const fn cover_last(&mut self) {
        self.to_cover = self.last;
    }

    fn frame(&self) -> Frame {
        let Self { active, life, last, durable, .. } = self;
        Frame { salt: active.header.salt, position: self.next(), life: *life, previous: *last, durable: *durable }
    }

    /// Appends a record, for which there must be room.
    pub(super) fn append(&mut self, content: ContentRef<'_>, body: &Bytes, crc: u32) -> Place {
        let body_ref = BodyRef { bytes: body.len() as u32, crc };
        let (frame, start) = (self.frame(), self.heads.len());
        encode(&mut self.heads, &frame, content, body_ref);
        let place = self.take(start, head_bytes(content), body, body_ref);
        if matches!(content, ContentRef::Commit(_)) {
            self.cover_last();
        }
        place
    }

    /// Appends a copy of a record, for which there must be room.
    pub(super) fn append_copy(&mut self, head: &[u8], body: &Bytes, crc: u32) -> Place {
        let body_ref = BodyRef { bytes: body.len() as u32, crc };
        let (frame, start) = (self.frame(), self.heads.len());
        encode_copy(&mut self.heads, &frame, head);
        let place = self.take(start, head.len() as u32, body, body_ref);
        self.cover_last();
        place
    }

    fn take(&mut self, start: usize, head_bytes: u32, body: &Bytes, body_ref: BodyRef) -> Place {
        let place = Place { position: self.next(), head_bytes, body: body_ref };
        let end = self.active.at + head_bytes + body_ref.bytes;
        self.parts.push(Part::Head(start..self.heads.len()));
        if !body.is_empty() {
            self.parts.push(Part::Body(body.clone()));
            if aligned(end) > end {
                self.parts.push(Part::Pad((aligned(end) - end) as usize));
            }
        }
        self.last = place.position;
        self.told_durable = self.durable;
        self.end = Position::new(self.generation(), end);
        self.appended_bytes += u64::from(aligned(end) - self.active.at);
        self.active.at = aligned(end);
        place
    }

    /// Writes the gathered records.
    pub(super) fn write_out(&mut self) -> Result<(), Fault> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let slices: Vec<IoSlice<'_>> = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Head(range) => IoSlice::new(&self.heads[range.clone()]),
                Part::Body(bytes) => IoSlice::new(bytes),
                Part::Pad(bytes) => IoSlice::new(&PAD[..*bytes]),
            })
            .collect();
        let ActiveSegment { name, file, at, .. } = &self.active;
        self.is_unsynced = true;
        file.write_at(&slices, u64::from(self.parts_at)).map_err(Fault::of("writing", name))?;
        if at - self.parts_at >= BEGIN_MIN_BYTES {
            file.begin_writing(u64::from(self.parts_at), u64::from(at - self.parts_at));
        }
        self.parts_at = *at;
        self.parts.clear();
        self.heads.clear();
        Ok(())
    }

    /// Makes all appended records durable. True if there were any.
    pub(super) fn sync(&mut self) -> Result<bool, Fault> {
        self.write_out()?;
        if !self.is_unsynced && self.behind.is_empty() {
            return Ok(false);
        }
        for (name, file) in self.behind.drain(..) {
            file.sync().map_err(Fault::of("syncing", &name))?;
        }
        self.active.file.sync().map_err(Fault::of("syncing", &self.active.name))?;
        self.is_unsynced = false;
        self.durable = self.end;
        // A sector with acknowledged bytes is never written again.
        self.active.at = next_sector(self.active.at);
        self.parts_at = self.active.at;
        Ok(true)
    }

    /// Continues in another segment.
    pub(super) fn switch(&mut self, to: PreparedSegment) -> Result<(), Fault> {
        self.write_out()?;
        let PreparedSegment { name, file, header } = to;
        let left = std::mem::replace(&mut self.active, ActiveSegment { name, file, header, at: FIRST_RECORD });
        if std::mem::take(&mut self.is_unsynced) {
            self.behind.push((left.name, left.file));
        }
        self.parts_at = FIRST_RECORD;
        Ok(())
    }
}
