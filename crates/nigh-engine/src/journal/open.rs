//! Opens a journal: recovers its valid records, takes an epoch, and continues after the last valid record.
//!
//! Damaged records stay in their segment until it is used again, and a copy of the damaged file is kept permanently.
//! Unreadable files are moved aside.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use nigh_terms::Epoch;

use super::disk::Folder;
use super::format::{ContentRef, FIRST_RECORD, HEAD_BYTES, Position, SegmentHeader, next_sector};
use super::found::{FoundFile, FoundFiles, file_name, read};
use super::live::{LiveIndex, Place, Segment};
use super::newest::{NEWEST, NewestFile};
use super::prepare::{NotReady, PreparedSegment, Preparer, SegmentRequest, UNFINISHED, begin_anew, prepare};
use super::recovery::{Outcome, recover};
use super::report::{JournalRecovery, RecoveredRecord};
use super::room::Room;
use super::shared::{JournalState, Limits};
use super::tail::{ActiveSegment, Fault, Tail};
use super::writer::Writer;
use super::{JournalError, OnDamage};
use crate::requests::Requests;

/// The prefix of damaged files and their copies.
const ASIDE: &str = "damaged-";
/// The note that writes of unknown objects may be lost, in the journal's folder. An operator removes it.
pub const UNNAMED_DAMAGE: &str = "unnamed-damage";
/// The most files kept aside; with more, the journal does not open.
const ASIDE_MAX: usize = 16;

/// The inputs of opening a journal.
pub(super) struct JournalOpenOptions {
    pub(super) limits: Limits,
    pub(super) epoch_min: Epoch,
    pub(super) on_damage: OnDamage,
    pub(super) salt: fn() -> u64,
    pub(super) end_mark_delay: Duration,
}

fn failed(what: &'static str, file: &str) -> impl FnOnce(io::Error) -> JournalError {
    let file = file.to_owned();
    move |source| JournalError::Io { what, file, source }
}

/// Opens the journal in `folder`.
pub(super) fn open(
    folder: Arc<dyn Folder>,
    opening: &JournalOpenOptions,
) -> Result<(Writer, Arc<JournalState>, JournalRecovery), JournalError> {
    let names = folder.names().map_err(failed("reading", "the folder"))?;
    for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
        folder.remove(name).map_err(failed("removing", name))?;
    }
    let mut found = read(&*folder, true)?;
    let mut outcome = recover(&mut found.segments, found.newest.generation);
    outcome.damage.splice(0..0, std::mem::take(&mut found.damage));
    let mut may_lack_writes = names.iter().any(|name| name == UNNAMED_DAMAGE);
    if !outcome.damage.is_empty() {
        match opening.on_damage {
            OnDamage::Refuse => return Err(JournalError::Damaged(outcome.damage)),
            OnDamage::KeepAside => keep_aside(&*folder, &names, &found, &outcome)?,
        }
        if !may_lack_writes && outcome.damage.iter().any(|damage| damage.kind.hides_writes()) {
            note_unnamed_damage(&*folder).map_err(failed("making", UNNAMED_DAMAGE))?;
            may_lack_writes = true;
        }
    }
    let epoch = outcome.epoch.next().max(opening.epoch_min);
    let mut recovered = JournalRecovery {
        epoch,
        records: Vec::new(),
        damage: std::mem::take(&mut outcome.damage),
        may_lack_writes,
        torn: outcome.torn.take(),
        segments: found.segments.len(),
        bytes: found.bytes,
    };
    let last = outcome.last;
    let tail =
        last.map_or(0, |(last, _)| found.files.partition_point(|file| file.header.generation < last.generation()));
    let (live, requests, records) = index(&found.files, tail, outcome);
    recovered.records = records;

    let shared = Arc::new(JournalState::new(live, epoch, opening.limits));
    let room = begin(folder, opening, &shared, found, last, tail)?;
    Ok((Writer::new(room, requests, opening.end_mark_delay), shared, recovered))
}

/// Copies damaged files, and moves unreadable files aside.
fn keep_aside(
    folder: &dyn Folder,
    names: &[String],
    found: &FoundFiles,
    outcome: &Outcome,
) -> Result<(), JournalError> {
    let damaged: BTreeSet<&str> = outcome.damage.iter().map(|damage| damage.file.as_str()).collect();
    let mut aside = names.iter().filter(|name| name.starts_with(ASIDE)).count();
    let mut another = |as_name: &str| {
        if names.iter().any(|name| name == as_name) {
            return Ok(false);
        }
        aside += 1;
        if aside > ASIDE_MAX { Err(JournalError::TooMuchDamage { kept: ASIDE_MAX }) } else { Ok(true) }
    };
    for file in found.files.iter().filter(|file| damaged.contains(file.name.as_str())) {
        let as_name = format!("{ASIDE}{:08}-{}", file.header.generation, file.name);
        if another(&as_name)? {
            folder.copy(&file.name, &as_name).map_err(failed("copying", &file.name))?;
        }
    }
    for name in &found.unusable {
        let mut number = 1;
        let mut as_name = format!("{ASIDE}{name}");
        while names.contains(&as_name) {
            number += 1;
            as_name = format!("{ASIDE}{name}-{number}");
        }
        another(&as_name)?;
        folder.rename(name, &as_name).map_err(failed("renaming", name))?;
    }
    Ok(())
}

/// Makes the note that writes of unknown objects were lost: an empty file, whose date is the time of this. The damaged
/// segments are used again some day; what was in them is missing all the same.
fn note_unnamed_damage(folder: &dyn Folder) -> io::Result<()> {
    let unfinished = format!("{UNNAMED_DAMAGE}{UNFINISHED}");
    folder.create(&unfinished)?;
    folder.rename(&unfinished, UNNAMED_DAMAGE)
}

/// The index, the known requests and the unpushed records; `tail` is the last valid segment.
fn index(files: &[FoundFile], tail: usize, outcome: Outcome) -> (LiveIndex, Requests, Vec<RecoveredRecord>) {
    let mut live = LiveIndex::default();
    live.segments.extend(files.iter().take(tail + 1).map(|file| {
        let FoundFile { name, file, header, .. } = file;
        Segment::new(&PreparedSegment { name: name.clone(), file: Arc::clone(file), header: *header })
    }));
    let mut requests = Requests::default();
    for kept in outcome.order.iter().filter_map(|version| outcome.commits.get(version)) {
        requests.insert(requests.key(kept.commit.shard, &kept.commit.record), kept.commit.version);
    }
    let mut records = Vec::new();
    for kept in outcome.commits.into_values().filter(|kept| !kept.stored) {
        let (commit, body_bytes) = (kept.commit, kept.body_bytes);
        for piece in &commit.pieces {
            if let Some(found) = outcome.pieces.get(&piece.id) {
                live.add_piece(piece.id, Place::of(found));
            }
        }
        let record = &commit.record;
        let object = (commit.shard, record.namespace.clone(), record.bucket.clone(), record.key.clone());
        live.add_record(commit.version, object, Place::of(&kept.found), commit.pieces);
        records.push(RecoveredRecord {
            shard: commit.shard,
            version: commit.version,
            record: commit.record,
            body_bytes,
        });
    }
    (live, requests, records)
}

/// Begins an epoch after the last valid record, in segment `tail` or, if that has no room, in the next.
fn begin(
    folder: Arc<dyn Folder>,
    opening: &JournalOpenOptions,
    shared: &Arc<JournalState>,
    found: FoundFiles,
    last: Option<(Position, u32)>,
    tail: usize,
) -> Result<Room, JournalError> {
    let epoch = shared.life;
    let oldest = found.files.first().map(|file| file.header.generation);
    // A generation is never used twice, also if the segments that had it are missing.
    let youngest = found.files.last().map_or(0, |file| file.header.generation).max(found.newest.generation);
    let mut next_generation = youngest + 1;
    let mut newest = NewestFile::new(Arc::clone(&folder), found.newest);
    newest.raise(youngest).map_err(failed("writing", NEWEST))?;
    let (mut files, mut last_number) = (found.files.len() as u32, found.last_number);
    let mut ready = VecDeque::new();
    let mut active = None;
    for (at, FoundFile { name, file, header, truncated, uneven, .. }) in found.files.into_iter().enumerate() {
        if at > tail {
            // Records there were never acknowledged; another salt makes them invalid.
            let header = SegmentHeader { salt: (opening.salt)(), epoch, oldest: oldest.unwrap_or(1), ..header };
            begin_anew(&*file, &header).map_err(failed("beginning anew with", &name))?;
            ready.push_back(PreparedSegment { name, file, header });
        } else if !truncated && uneven {
            begin_anew(&*file, &header).map_err(failed("writing the header of", &name))?;
            active = Some((name, file, header));
        } else {
            active = (!truncated).then_some((name, file, header));
        }
    }
    let offset = next_sector(last.map_or(FIRST_RECORD, |(_, end)| end));
    let active = active.filter(|(.., header)| offset + HEAD_BYTES <= header.records_end());
    let active = match active {
        Some((name, file, header)) => ActiveSegment { name, file, header, at: offset },
        None => {
            let next = match ready.pop_front() {
                Some(next) => next,
                None => {
                    let free = {
                        let mut live = shared.live.lock();
                        let is_free = live.segments.len() > 1
                            && live.segments.front().is_some_and(|oldest| oldest.needed_bytes == 0);
                        // The disk has the proof that it is free, because recovery read it there.
                        if is_free { live.segments.pop_front() } else { None }
                    };
                    let mut bytes = opening.limits.segment_bytes;
                    let (name, file) = match free {
                        Some(free) => {
                            bytes = bytes.max(free.bytes);
                            (free.name, Some(free.file))
                        }
                        // Beyond the limit if necessary: a full journal must open, so that it can be emptied.
                        None => {
                            files += 1;
                            last_number += 1;
                            (file_name(last_number), None)
                        }
                    };
                    let oldest =
                        shared.live.lock().segments.front().map_or(next_generation, |oldest| oldest.generation);
                    let salt = (opening.salt)();
                    let header = SegmentHeader { generation: next_generation, salt, oldest, epoch, bytes };
                    next_generation += 1;
                    prepare(&*folder, &mut newest, SegmentRequest { name: name.clone(), file, header }).map_err(
                        |not| match not {
                            NotReady::New(source) | NotReady::Fault(source) => failed("making", &name)(source),
                        },
                    )?
                }
            };
            shared.live.lock().segments.push_back(Segment::new(&next));
            let PreparedSegment { name, file, header } = next;
            ActiveSegment { name, file, header, at: FIRST_RECORD }
        }
    };
    let mut tail = Tail::new(active, epoch, last.map_or(Position::START, |(last, _)| last));
    tail.append(ContentRef::Life, &Bytes::new(), 0);
    tail.sync().map_err(|Fault(reason)| {
        failed("writing the first record of an incarnation to", "the journal")(io::Error::other(reason))
    })?;
    shared.counters.files.store(u64::from(files), Ordering::Relaxed);
    let preparer = Preparer::start(Arc::clone(&folder), newest).map_err(failed("starting", "a thread"))?;
    Ok(Room {
        tail,
        shared: Arc::clone(shared),
        preparer,
        ready,
        next_generation,
        files,
        last_number,
        salt: opening.salt,
        full_until: None,
    })
}
