//! Finds room for the next record: in the current segment, in a new one, or in a reused old one.
//!
//! Segments are reused strictly oldest first. If a younger one were reused before an older one, a record in the older
//! one could outlive a newer record of the same object, and a crash would push it over what the store has. So a few
//! needed records in the oldest segment are copied forward with their versions, and notices of stored writes are
//! durable before any segment is reused. Recovery then never finds an older write of an object without the newer ones,
//! unless those are known to be stored.
//!
//! While no segment is ready, the end of the current one is reserved for these copies and notices, so that a full journal
//! can always make room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_terms::Version;

use super::format::{ContentRef, HEAD_BYTES, SECTOR, STORED_MAX, SegmentHeader, aligned};
use super::found::file_name;
use super::live::Segment;
use super::prepare::{NotReady, PreparedSegment, Preparer, SegmentRequest};
use super::reading;
use super::shared::{JournalState, Limits};
use super::tail::{Fault, Tail};

/// The wait before another attempt to create a segment after the disk was full.
const RETRY: Duration = Duration::from_secs(1);

/// Why a record has no room, or the journal has failed.
#[derive(Debug)]
pub(super) enum NoRoom {
    Full,
    Fault(Fault),
}

impl From<Fault> for NoRoom {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Limits {
    /// The most needed bytes of the oldest segment that are copied forward.
    pub(super) const fn movable_bytes(&self) -> u32 {
        self.segment_bytes / 4 - 2 * SECTOR
    }

    /// The room that is reserved for copies, and for notices of all needed records.
    pub(super) const fn reserve_bytes(&self) -> u32 {
        self.segment_bytes / 4 + self.segment_bytes / 8 + 4 * SECTOR
    }
}

/// The segments, and the tail of the journal in the youngest of them.
pub(super) struct Room {
    pub(super) tail: Tail,
    pub(super) shared: Arc<JournalState>,
    pub(super) preparer: Preparer,
    /// Segments younger than the tail's, oldest first.
    pub(super) ready: VecDeque<PreparedSegment>,
    pub(super) next_generation: u64,
    /// Number of segment files.
    pub(super) files: u32,
    /// The number in the name of the newest file.
    pub(super) last_number: u32,
    /// Draws the salt of a segment.
    pub(super) salt: fn() -> u64,
    /// The time before which no new segment is tried; none if the disk was not full.
    pub(super) full_until: Option<Instant>,
}

impl Room {
    /// Makes room for a record of this length. Only a `vital` record may use the reserve.
    pub(super) fn make(&mut self, bytes: u32, vital: bool) -> Result<(), NoRoom> {
        let bytes = aligned(bytes);
        loop {
            let left = self.tail.left();
            let fits = bytes <= left;
            let limits = &self.shared.limits;
            // The file beyond the limit was made to open a full journal, not to be filled.
            let spares = self.files <= limits.files_max && left.saturating_sub(bytes) >= limits.reserve_bytes();
            if fits && (vital || !self.ready.is_empty() || spares) {
                return Ok(());
            }
            if vital && self.ready.is_empty() {
                return Err(NoRoom::Full);
            }
            if self.ready.is_empty() && !self.obtain()? {
                return Err(NoRoom::Full);
            }
            if !fits && let Some(next) = self.ready.pop_front() {
                self.switch(next)?;
            }
        }
    }

    fn switch(&mut self, next: PreparedSegment) -> Result<(), Fault> {
        self.shared.live.lock().segments.push_back(Segment::new(&next));
        self.tail.switch(next)
    }

    /// Begins to prepare the next segment before it is needed.
    pub(super) fn prepare_ahead(&mut self) -> Result<(), Fault> {
        if let Some(done) = self.preparer.poll() {
            self.take_prepared(done)?;
        }
        if self.ready.is_empty() && !self.preparer.is_busy() && self.tail.used() > self.shared.limits.segment_bytes / 4
        {
            self.begin()?;
        }
        Ok(())
    }

    /// Prepares a segment and waits for it. False if there is no room for one.
    fn obtain(&mut self) -> Result<bool, Fault> {
        loop {
            if self.preparer.is_busy() {
                let done = self.preparer.wait();
                self.take_prepared(done)?;
                if !self.ready.is_empty() {
                    return Ok(true);
                }
            }
            if !self.begin()? && !self.move_oldest()? {
                return Ok(false);
            }
        }
    }

    fn take_prepared(&mut self, done: Result<PreparedSegment, NotReady>) -> Result<(), Fault> {
        match done {
            Ok(ready) => self.ready.push_back(ready),
            Err(NotReady::New(error)) => {
                tracing::warn!(%error, "the journal cannot create a segment and counts as full meanwhile");
                self.full_until = Some(Instant::now() + RETRY);
                self.files -= 1;
                self.next_generation -= 1;
            }
            Err(NotReady::Fault(error)) => return Err(Fault::of("preparing", "a segment")(error)),
        }
        self.shared.counters.files.store(u64::from(self.files), Ordering::Relaxed);
        Ok(())
    }

    /// Begins to prepare a segment: the oldest, if it is not needed, else a new one. False if there is none.
    fn begin(&mut self) -> Result<bool, Fault> {
        let oldest_is_free = {
            let live = self.shared.live.lock();
            live.segments.len() > 1 && live.segments.front().is_some_and(|oldest| oldest.needed_bytes == 0)
        };
        let (name, file, bytes) = if oldest_is_free {
            // The notices that make it free must be durable before it is reused.
            match self.notices(true) {
                Ok(()) => {}
                Err(NoRoom::Full) => return Ok(false),
                Err(NoRoom::Fault(fault)) => return Err(fault),
            }
            self.sync()?;
            self.tail.cover_last();
            let Some(oldest) = self.shared.live.lock().segments.pop_front() else { return Ok(false) };
            self.shared.counters.trims.fetch_add(1, Ordering::Relaxed);
            (oldest.name, Some(oldest.file), oldest.bytes.max(self.shared.limits.segment_bytes))
        } else {
            let full = self.full_until.is_some_and(|until| Instant::now() < until);
            if full || self.files >= self.shared.limits.files_max {
                return Ok(false);
            }
            self.files += 1;
            self.last_number += 1;
            (file_name(self.last_number), None, self.shared.limits.segment_bytes)
        };
        let header = self.header(bytes);
        self.preparer.begin(SegmentRequest { name, file, header });
        Ok(true)
    }

    /// The header of the next segment.
    fn header(&mut self, bytes: u32) -> SegmentHeader {
        let oldest = self.shared.live.lock().segments.front().map_or(self.next_generation, |oldest| oldest.generation);
        let header = SegmentHeader {
            generation: self.next_generation,
            salt: (self.salt)(),
            oldest,
            epoch: self.shared.life,
            bytes,
        };
        self.next_generation += 1;
        header
    }

    /// Writes notices of the stored writes.
    pub(super) fn notices(&mut self, vital: bool) -> Result<(), NoRoom> {
        let most = STORED_MAX.min((self.shared.limits.record_max_bytes - HEAD_BYTES) as usize / 16);
        loop {
            let count = self.shared.live.lock().notices.len().min(most);
            if count == 0 {
                return Ok(());
            }
            self.make(HEAD_BYTES + 16 * count as u32, vital)?;
            // Making room may have written some notices.
            let versions: Vec<Version> = {
                let mut live = self.shared.live.lock();
                let count = count.min(live.notices.len());
                live.notices.drain(..count).collect()
            };
            if !versions.is_empty() {
                self.tail.append(ContentRef::Stored(&versions), &Bytes::new(), 0);
            }
        }
    }

    /// Writes an end mark if there is room beside the reserve: an empty record that follows the last write, and so says
    /// that this was on the disk. Builds without end marks read it as the begin of an epoch that cut nothing off.
    pub(super) fn end_mark(&mut self) -> Result<(), Fault> {
        match self.make(HEAD_BYTES, false) {
            Ok(()) => {}
            Err(NoRoom::Full) => return Ok(()),
            Err(NoRoom::Fault(fault)) => return Err(fault),
        }
        self.tail.append(ContentRef::Life, &Bytes::new(), 0);
        self.sync()
    }

    /// Makes all appended records durable.
    pub(super) fn sync(&mut self) -> Result<(), Fault> {
        let synced = self.tail.sync()?;
        let counters = &self.shared.counters;
        counters.syncs.fetch_add(u64::from(synced), Ordering::Relaxed);
        counters.bytes.store(self.tail.appended_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Copies the needed records of the oldest segment forward, if they are few. False if they are not, or cannot be read.
    fn move_oldest(&mut self) -> Result<bool, Fault> {
        let (oldest, name, file, movable) = {
            let live = self.shared.live.lock();
            let Some(oldest) = live.segments.front().filter(|_| live.segments.len() > 1) else { return Ok(false) };
            let little = 1..=u64::from(self.shared.limits.movable_bytes());
            if oldest.unmovable || !little.contains(&oldest.needed_bytes) {
                return Ok(false);
            }
            (oldest.generation, oldest.name.clone(), Arc::clone(&oldest.file), live.movable(oldest.generation))
        };
        let mut copies = Vec::with_capacity(movable.len());
        for (item, place) in movable {
            match reading::copy(&*file, &place) {
                Ok(copy) => copies.push((item, copy)),
                Err(reason) => {
                    tracing::error!(name, offset = place.position.offset(), %reason, "a record cannot be copied forward");
                    if let Some(segment) = self.shared.live.lock().segment_mut(oldest) {
                        segment.unmovable = true;
                    }
                    return Ok(false);
                }
            }
        }
        let whole: u64 = copies.iter().map(|(_, copy)| copy.head.len() as u64 + copy.body.len() as u64 + 8).sum();
        if whole > u64::from(self.tail.left()) {
            return Ok(false);
        }
        let moved: Vec<_> = copies
            .into_iter()
            .map(|(item, copy)| (item, self.tail.append_copy(&copy.head, &copy.body, copy.crc)))
            .collect();
        self.sync()?;
        let mut live = self.shared.live.lock();
        moved.into_iter().for_each(|(item, place)| live.moved(item, place));
        Ok(true)
    }
}
