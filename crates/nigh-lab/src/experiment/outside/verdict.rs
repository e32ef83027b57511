//! Which reads were stale and which writes were lost. Pure: a history in, counts out.
//!
//! A write takes effect at some moment between its begin and its acknowledgement; without one, at any moment after its
//! begin. So one write is certainly before another if it was acknowledged before the other began. What is concurrent
//! may have come in either order.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Serialize, Serializer};

/// Nanoseconds since the race began.
pub(super) type Moment = u64;

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) id: u64,
    pub(super) key: String,
    pub(super) by_nigh: bool,
    pub(super) deletes: bool,
    pub(super) begin: Moment,
    pub(super) acknowledged: Option<Moment>,
    /// When its client began to look at the store before this deletion, if it saw an object there.
    pub(super) found: Option<Moment>,
}

impl Write {
    /// The latest moment at which it may have taken effect.
    fn latest(&self) -> Moment {
        self.acknowledged.unwrap_or(Moment::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutsideFinding {
    Absent,
    Write(u64),
    /// Bytes of no one write.
    Mixed,
}

#[derive(Clone, Debug)]
pub(super) struct OutsideRead {
    pub(super) key: String,
    pub(super) by_nigh: bool,
    pub(super) begin: Moment,
    pub(super) end: Moment,
    pub(super) seen: OutsideFinding,
    /// In the end, when nobody writes any more.
    pub(super) last: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    pub(super) lost_outside_writes: u64,
    /// The longest that a write was not seen after its acknowledgement, in nanoseconds; reported in milliseconds.
    #[serde(rename = "lag_ms", serialize_with = "in_ms")]
    pub(super) lag_ns: u64,
    pub(super) stale_outside_reads: u64,
    pub(super) stale_nigh_reads: u64,
    pub(super) lost_nigh_writes: u64,
    /// Deletions after which an older write is there again: a late push where others have deleted what was not there when it
    /// was acknowledged.
    pub(super) undone_deletions: u64,
    /// Of these, outside deletions that may have found nothing at the store.
    pub(super) undone_of_nothing: u64,
    /// Of the undone deletions, outside ones of an object that others had put since the write that is there again.
    pub(super) undone_of_a_put: u64,
    /// Of the stale reads through Nigh, those that saw a write of Nigh's though an outsider had deleted the object since,
    /// and may have found nothing there.
    pub(super) past_nothing: u64,
    /// Those that saw one though others had put the object since, and had deleted it again.
    pub(super) past_deletions: u64,
    /// Objects that are of no one write.
    pub(super) mixed: u64,
    #[serde(skip)]
    pub(super) first: Option<String>,
    /// The first write that is lost.
    #[serde(skip)]
    pub(super) lost_first: Option<String>,
}

fn in_ms<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ns as f64 / 1e6)
}

/// Judges `reads`. `kept_apart` are writes that are kept under another key.
pub(super) fn check(writes: &[Write], reads: &[OutsideRead], kept_apart: &HashSet<u64>) -> Verdict {
    let by_id: HashMap<u64, &Write> = writes.iter().map(|write| (write.id, write)).collect();
    let mut by_key: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    for write in writes {
        by_key.entry(&write.key).or_default().push(write);
    }
    let mut verdict = Verdict::default();
    for read in reads {
        let of_key = by_key.get(read.key.as_str()).map_or(&[][..], Vec::as_slice);
        // Until when what was seen may have been written.
        let latest = match read.seen {
            OutsideFinding::Absent => of_key.iter().filter(|write| write.deletes).map(|write| write.latest()).max(),
            OutsideFinding::Write(id) => match by_id.get(&id).filter(|write| write.key == read.key) {
                Some(write) => Some(write.latest()),
                None => {
                    verdict.mixed += 1;
                    continue;
                }
            },
            OutsideFinding::Mixed => {
                verdict.mixed += 1;
                continue;
            }
        };
        let is_older = |write: &&&Write| match latest {
            Some(latest) => latest < write.begin,
            // Nothing was there in the beginning; a deletion of nothing changes nothing.
            None => !write.deletes,
        };
        let missed =
            of_key.iter().filter(|write| write.acknowledged.is_some_and(|at| at < read.begin)).filter(is_older);
        let missed: Vec<&&Write> = missed.collect();
        let Some(first) = missed.iter().min_by_key(|write| write.latest()) else { continue };
        // Certain only if nobody else may have deleted the object between the look and the deletion.
        let found_something = |write: &Write| {
            let deleted = |at: Moment| {
                of_key.iter().any(|other| {
                    other.deletes && other.id != write.id && other.latest() >= at && other.begin <= write.latest()
                })
            };
            write.found.is_some_and(|at| !deleted(at))
        };
        let of_nothing = missed.iter().all(|write| write.deletes && !write.by_nigh && !found_something(write));
        let seen = match read.seen {
            OutsideFinding::Write(id) => by_id.get(&id).filter(|write| write.by_nigh),
            OutsideFinding::Absent | OutsideFinding::Mixed => None,
        };
        let seen = seen.filter(|_| missed.iter().all(|write| !write.by_nigh));
        // Others may have put the object since, and have removed it before this node looked.
        let of_a_put = seen.is_some_and(|seen| {
            // It may have taken effect before the read and after all that was missed, also if it was not acknowledged yet.
            let may_be_last = |write: &Write| {
                write.deletes
                    && !write.by_nigh
                    && write.begin <= read.end
                    && !missed.iter().any(|other| other.begin > write.latest())
            };
            let put_since = |write: &Write| !write.by_nigh && !write.deletes && write.latest() >= seen.begin;
            of_key.iter().any(|write| may_be_last(write)) && of_key.iter().any(|write| put_since(write))
        });
        if read.by_nigh && seen.is_some() {
            verdict.past_nothing += u64::from(of_nothing);
            verdict.past_deletions += u64::from(of_a_put && !of_nothing);
        }
        verdict.lag_ns = verdict.lag_ns.max(read.begin - first.latest());
        let (count, side) = match read.by_nigh {
            true => (&mut verdict.stale_nigh_reads, "Nigh"),
            false => (&mut verdict.stale_outside_reads, "the store"),
        };
        *count += 1;
        if read.last && !read.by_nigh {
            // A version of Nigh's that is kept apart gave way to others', and the older ones of Nigh's to it.
            let apart: Vec<&&Write> = of_key.iter().filter(|write| kept_apart.contains(&write.id)).collect();
            let gave_way = |write: &Write| write.by_nigh && apart.iter().any(|apart| apart.latest() >= write.begin);
            // Of those that were concurrent, one is taken for the last.
            let is_after = |other: &Write, write: &Write| {
                other.begin > write.latest() || (other.latest() >= write.begin && other.id > write.id)
            };
            let superseded = |write: &Write| missed.iter().any(|other| !gave_way(other) && is_after(other, write));
            for write in missed.iter().filter(|write| !gave_way(write) && !superseded(write)) {
                *match (write.deletes, write.by_nigh) {
                    (true, _) => &mut verdict.undone_deletions,
                    (false, true) => &mut verdict.lost_nigh_writes,
                    (false, false) => &mut verdict.lost_outside_writes,
                } += 1;
                verdict.undone_of_nothing += u64::from(of_nothing);
                verdict.undone_of_a_put += u64::from(write.deletes && of_a_put && !of_nothing);
                let what = || format!("the store ends with {:?}, without {write:?}", read.seen);
                verdict.lost_first.get_or_insert_with(what);
            }
        }
        verdict.first.get_or_insert_with(|| format!("{read:?} from {side} missed {first:?}"));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(id: u64, by_nigh: bool, begin: Moment, end: Moment) -> Write {
        let acknowledged = (end > 0).then_some(end);
        Write { id, key: "k".to_owned(), by_nigh, deletes: false, begin, acknowledged, found: None }
    }

    fn read(by_nigh: bool, begin: Moment, seen: OutsideFinding) -> OutsideRead {
        OutsideRead { key: "k".to_owned(), by_nigh, begin, end: begin + 1, seen, last: false }
    }

    fn judge(writes: &[Write], reads: &[OutsideRead]) -> Verdict {
        check(writes, reads, &HashSet::new())
    }

    #[test]
    fn a_read_older_than_what_was_acknowledged_before_it_began_is_stale_and_has_a_lag() {
        let writes = [write(1, true, 0, 10), write(2, false, 20, 30)];
        let verdict =
            judge(&writes, &[read(true, 45, OutsideFinding::Write(1)), read(false, 35, OutsideFinding::Absent)]);
        assert_eq!((verdict.stale_nigh_reads, verdict.stale_outside_reads, verdict.lag_ns), (1, 1, 25));
        assert!(verdict.first.unwrap().contains("from Nigh missed"));
        // Not acknowledged when it began, or concurrent with what was seen.
        for fresh in [
            read(true, 30, OutsideFinding::Write(1)),
            read(true, 45, OutsideFinding::Write(2)),
            read(true, 5, OutsideFinding::Absent),
        ] {
            assert_eq!(judge(&writes, &[fresh]), Verdict::default());
        }
        let concurrent = [write(1, true, 0, 25), write(2, false, 20, 30)];
        assert_eq!(judge(&concurrent, &[read(true, 45, OutsideFinding::Write(1))]), Verdict::default());
        let unanswered = [write(1, true, 0, 0), write(2, false, 20, 30)];
        assert_eq!(judge(&unanswered, &[read(true, 45, OutsideFinding::Write(1))]), Verdict::default());
    }

    #[test]
    fn a_deletion_is_a_write_and_one_of_nothing_changes_nothing() {
        let gone = Write { deletes: true, ..write(2, false, 20, 30) };
        let writes = [write(1, true, 0, 10), gone.clone()];
        assert_eq!(judge(&writes, &[read(true, 40, OutsideFinding::Absent)]), Verdict::default());
        assert_eq!(judge(&writes, &[read(true, 40, OutsideFinding::Write(1))]).stale_nigh_reads, 1);
        assert_eq!(judge(std::slice::from_ref(&gone), &[read(true, 40, OutsideFinding::Absent)]), Verdict::default());
        let after = [gone, write(3, true, 35, 38)];
        assert_eq!(judge(&after, &[read(false, 40, OutsideFinding::Absent)]).stale_outside_reads, 1);
    }

    #[test]
    fn a_deletion_that_may_have_found_nothing_and_one_of_a_put_since_are_told_apart() {
        let nighs = write(1, true, 0, 10);
        let deletion = |found| Write { deletes: true, found, ..write(3, false, 30, 40) };
        let counts = |writes: &[Write]| {
            let last = [OutsideRead { last: true, ..read(false, 50, OutsideFinding::Write(1)) }];
            let ended = judge(writes, &last);
            let seen = judge(writes, &[read(true, 50, OutsideFinding::Write(1))]);
            assert_eq!((seen.stale_nigh_reads, ended.undone_deletions), (1, 1));
            assert_eq!(seen.past_deletions, ended.undone_of_a_put);
            (seen.past_nothing, seen.past_deletions, ended.undone_of_nothing)
        };
        assert_eq!(counts(&[nighs.clone(), deletion(None)]), (1, 0, 1));
        assert_eq!(counts(&[nighs.clone(), deletion(Some(25))]), (0, 0, 0), "it found Nigh's write or an older one");
        let other = Write { deletes: true, ..write(4, true, 0, 28) };
        assert_eq!(counts(&[nighs.clone(), deletion(Some(25)), other]), (1, 0, 1), "another may have come before it");
        assert_eq!(
            counts(&[nighs.clone(), write(2, false, 15, 20), deletion(None)]),
            (0, 1, 0),
            "a put since, and its end"
        );
        let under_way = Write { acknowledged: None, begin: 51, ..deletion(None) };
        let put = write(2, false, 15, 20);
        let seen = judge(&[nighs.clone(), put.clone(), under_way], &[read(true, 50, OutsideFinding::Write(1))]);
        assert_eq!((seen.stale_nigh_reads, seen.past_deletions), (1, 1), "a deletion beside the read");
        let seen = judge(&[nighs.clone(), put], &[read(true, 50, OutsideFinding::Write(1))]);
        assert_eq!((seen.stale_nigh_reads, seen.past_deletions), (1, 0));
        // A newer write of Nigh's that is not seen is no outsider's doing.
        let newer =
            judge(&[nighs, deletion(None), write(5, true, 15, 20)], &[read(true, 50, OutsideFinding::Write(1))]);
        assert_eq!((newer.stale_nigh_reads, newer.past_nothing, newer.past_deletions), (1, 0, 0));
    }

    #[test]
    fn what_the_store_ends_without_is_lost_unless_it_is_kept_apart() {
        let writes = [write(1, true, 0, 10), write(2, false, 20, 30), write(3, true, 21, 31)];
        let last = [OutsideRead { last: true, ..read(false, 50, OutsideFinding::Write(1)) }];
        let lost = |verdict: Verdict| (verdict.lost_outside_writes, verdict.lost_nigh_writes, verdict.undone_deletions);
        assert_eq!(lost(judge(&writes[..2], &last)), (1, 0, 0));
        assert_eq!(lost(judge(&writes, &last)), (0, 1, 0), "of two that were concurrent one was the last");
        let gone = Write { deletes: true, ..write(5, false, 40, 45) };
        assert_eq!(lost(judge(&[writes[0].clone(), writes[1].clone(), gone], &last)), (0, 0, 1));
        let mut more = writes.to_vec();
        more.push(write(4, true, 32, 34));
        assert_eq!(
            lost(check(&more, &last, &[4].into())),
            (1, 0, 0),
            "an older one of Nigh's gave way to its newer one"
        );
        assert_eq!(lost(check(&more, &last, &[3].into())), (0, 1, 0), "a newer one did not give way to an older one");
        let outside = [writes[0].clone(), writes[1].clone(), write(4, true, 32, 34)];
        assert_eq!(
            lost(check(&outside, &last, &[4].into())),
            (1, 0, 0),
            "what is kept apart gave way to others' write"
        );
        let last = [OutsideRead { last: true, ..read(false, 50, OutsideFinding::Write(3)) }];
        assert_eq!(judge(&writes, &last), Verdict::default(), "one of two that were concurrent stays");
    }

    #[test]
    fn bytes_of_no_write_or_of_another_key_are_mixed() {
        let writes = [write(1, true, 0, 10)];
        let other = OutsideRead { key: "other".to_owned(), ..read(true, 20, OutsideFinding::Write(1)) };
        assert_eq!(
            judge(&writes, &[read(true, 20, OutsideFinding::Mixed), read(true, 20, OutsideFinding::Write(9)), other])
                .mixed,
            3
        );
    }
}
