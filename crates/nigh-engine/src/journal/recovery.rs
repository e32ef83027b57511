//! Decides which of the records in all segments are valid. Pure.
//!
//! Each record names the one written before it, so the records form a chain; a gap in the chain is a hole, whatever its
//! bytes are. Each record also names the place up to which everything was on the disk when it was written. A hole or a
//! damaged body before the highest such place is damage, because it was durable once: the records after it are still
//! valid. After that place nothing was acknowledged: the journal ends at the first hole. The first record of an epoch
//! names the last record that its recovery kept, so a cut-off part never returns.

use std::collections::{BTreeMap, HashMap, HashSet};

use nigh_terms::{Epoch, Version};

use super::format::{Content, DecodedRecord, Position, SegmentHeader};
use super::report::{Damage, DamageKind, RecoveredRecord, TornTail};
use super::scan::{Scan, ScannedRecord};
use crate::commit_format::Commit;
use crate::ledger::PieceId;

/// A segment that was read.
#[derive(Debug)]
pub(super) struct SegmentFound {
    pub(super) file: String,
    pub(super) header: SegmentHeader,
    pub(super) scan: Scan,
}

/// A valid write.
#[derive(Debug)]
pub(super) struct KeptCommit {
    pub(super) commit: Commit,
    /// The newest copy of the write's record.
    pub(super) found: DecodedRecord,
    pub(super) stored: bool,
    pub(super) body_bytes: u64,
}

/// The outcome of recovery.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The highest epoch.
    pub(super) epoch: Epoch,
    /// Every undamaged write, stored or not, with its newest copy.
    pub(super) commits: BTreeMap<Version, KeptCommit>,
    /// The newest undamaged copy of each piece.
    pub(super) pieces: HashMap<PieceId, DecodedRecord>,
    /// Versions in the order of their records, for the table of requests.
    pub(super) order: Vec<Version>,
    /// The last valid record, and its end.
    pub(super) last: Option<(Position, u32)>,
    pub(super) damage: Vec<Damage>,
    pub(super) torn: Option<TornTail>,
}

struct Hole {
    /// The number of records before it.
    index: usize,
    start: Position,
}

/// Recovers the segments, which are in the order of their generations. Those up to generation `newest` may have records.
pub(super) fn recover(segments: &mut [SegmentFound], newest: u64) -> Outcome {
    let epoch = segments.iter().map(|segment| segment.header.epoch).max().unwrap_or_default();
    let mut outcome = Outcome { epoch, ..Outcome::default() };
    let files: HashMap<u64, String> =
        segments.iter().map(|segment| (segment.header.generation, segment.file.clone())).collect();
    // The file name of a position. If the segment is gone, its generation is the name.
    let file = |position: Position| {
        files
            .get(&position.generation())
            .cloned()
            .unwrap_or_else(|| format!("the segment of generation {}", position.generation()))
    };
    missing(segments, newest, &mut outcome.damage);

    let used = |segment: &&SegmentFound| segment.scan.begun.is_some() || !segment.scan.records.is_empty();
    let last_used = segments.iter().rev().find(used);
    let begun = last_used.and_then(|segment| Some((segment.file.clone(), segment.scan.begun?)));
    let oldest = segments.first().map_or(Position::START, |segment| Position::new(segment.header.generation, 0));
    let all = segments.iter_mut().flat_map(|segment| std::mem::take(&mut segment.scan.records));
    let (mut chain, mut holes) = link(all, oldest);

    let durable = chain.iter().map(|one| one.found.frame.durable).max().unwrap_or_default();
    let torn_body = chain.iter().position(|one| !one.whole && one.found.frame.position >= durable);
    let torn_hole = holes.iter().find(|hole| hole.start >= durable).map(|hole| (hole.index, hole.start));
    let cut = match (torn_body, torn_hole) {
        (Some(body), Some((index, start))) if index <= body => Some((index, start)),
        (Some(body), _) => Some((body, chain[body].found.frame.position)),
        (None, hole) => hole,
    };
    if let Some((index, start)) = cut {
        chain.truncate(index);
        holes.retain(|hole| hole.index < index);
        outcome.torn = Some(TornTail { file: file(start), offset: u64::from(start.offset()) });
    } else {
        outcome.torn = begun.map(|(file, offset)| TornTail { file, offset: u64::from(offset) });
    }
    let damaged =
        |position: Position, kind| Damage { file: file(position), offset: u64::from(position.offset()), kind };
    outcome.damage.extend(holes.iter().map(|hole| damaged(hole.start, DamageKind::Unknown)));
    outcome.last = chain.last().map(|one| (one.found.frame.position, one.found.end()));
    weigh(chain, &mut outcome, damaged);
    outcome
}

/// Missing segments: generations are consecutive, the youngest segment names the oldest, and the file `newest` names the
/// youngest.
fn missing(segments: &[SegmentFound], newest: u64, damage: &mut Vec<Damage>) {
    // Which one was the oldest is unknown if all are missing.
    let mut expected = segments.last().map_or(1, |youngest| youngest.header.oldest);
    for end in segments.iter().map(|segment| segment.header.generation).chain([newest + 1]) {
        if expected < end {
            let file = format!("the segments of generation {expected} to {}", end - 1);
            damage.push(Damage { file, offset: 0, kind: DamageKind::Missing });
        }
        expected = end + 1;
    }
}

/// Links the records to a chain, and finds its holes.
fn link(all: impl Iterator<Item = ScannedRecord>, oldest: Position) -> (Vec<ScannedRecord>, Vec<Hole>) {
    let mut chain: Vec<ScannedRecord> = Vec::new();
    let mut holes: Vec<Hole> = Vec::new();
    for one in all {
        let frame = &one.found.frame;
        if chain.last().is_some_and(|last| frame.life < last.found.frame.life) {
            continue;
        }
        if one.found.content == Content::Life {
            chain.truncate(chain.partition_point(|kept| kept.found.frame.position <= frame.previous));
            holes.retain(|hole| hole.index < chain.len());
        }
        let (follows, start) = match chain.last() {
            Some(last) => {
                let position = last.found.frame.position;
                (frame.previous == position, Position::new(position.generation(), last.found.end()))
            }
            // If the record before the first was in a reused segment, nothing is missing before the first.
            None => (frame.previous < oldest, Position::new(oldest.generation(), super::format::FIRST_RECORD)),
        };
        if !follows {
            holes.push(Hole { index: chain.len(), start });
        }
        chain.push(one);
    }
    (chain, holes)
}

/// Combines the records of the chain.
fn weigh(chain: Vec<ScannedRecord>, outcome: &mut Outcome, damaged: impl Fn(Position, DamageKind) -> Damage) {
    let mut stored: HashSet<Version> = HashSet::new();
    let mut commits: BTreeMap<Version, Vec<(Commit, DecodedRecord, bool)>> = BTreeMap::new();
    let mut broken: HashMap<PieceId, Position> = HashMap::new();
    for ScannedRecord { found, whole } in chain {
        outcome.epoch = outcome.epoch.max(found.frame.life);
        match &found.content {
            Content::Commit(commit) => {
                let commit = Commit::clone(commit);
                outcome.epoch = outcome.epoch.max(commit.version.epoch);
                outcome.order.push(commit.version);
                commits.entry(commit.version).or_default().push((commit, found, whole));
            }
            Content::Piece(id) if whole => {
                outcome.pieces.insert(*id, found);
            }
            Content::Piece(id) => {
                broken.insert(*id, found.frame.position);
            }
            Content::Stored(versions) => stored.extend(versions),
            Content::Life => {}
        }
    }
    for (version, mut copies) in commits {
        let stored = stored.contains(&version);
        // The last undamaged copy, else the last one.
        let best = copies.iter().rposition(|(.., whole)| *whole).unwrap_or(copies.len() - 1);
        let (commit, found, whole) = copies.swap_remove(best);
        let body_bytes =
            u64::from(found.body.bytes) + commit.pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>();
        let bad = (!whole).then_some(found.frame.position).or_else(|| {
            let bad = commit.pieces.iter().find(|piece| {
                outcome
                    .pieces
                    .get(&piece.id)
                    .is_none_or(|found| found.body.bytes != piece.bytes || found.body.crc != piece.crc)
            })?;
            Some(broken.remove(&bad.id).unwrap_or(found.frame.position))
        });
        // The pieces of a stored write may have gone with their segment.
        let gone = stored && whole && bad == Some(found.frame.position);
        match bad.filter(|_| !gone) {
            None => drop(outcome.commits.insert(version, KeptCommit { commit, found, stored, body_bytes })),
            Some(position) => {
                let Commit { shard, version, record, .. } = commit;
                let record = Box::new(RecoveredRecord { shard, version, record, body_bytes });
                outcome.damage.push(damaged(position, DamageKind::Record { record, stored }));
            }
        }
    }
    let mut unnamed: Vec<Position> = broken.into_values().collect();
    unnamed.sort_unstable();
    outcome.damage.extend(unnamed.into_iter().map(|position| damaged(position, DamageKind::Piece)));
}
