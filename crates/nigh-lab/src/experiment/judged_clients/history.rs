//! What clients did and saw, and which of it must not have been. Pure: a history in, violations out.
//!
//! A write takes effect at some moment between its begin and its latest: its acknowledgement, or where there was none
//! the moment after which it cannot happen any more, if there is one. So one write is certainly before another if its
//! latest is before the other's begin, and a read must not return a write that is certainly before one which was
//! acknowledged, or seen by somebody, before the read began. This is linearizability of a register for each key, as far
//! as intervals tell; the order of concurrent writes is left open.

use std::collections::{BTreeMap, HashMap};

use super::body::Content;

/// Nanoseconds since the part of the run began.
pub(crate) type Moment = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId {
    pub(crate) client: u32,
    pub(crate) sequence: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) id: WriteId,
    pub(crate) key: String,
    /// What the object is by it; none if it deletes.
    pub(crate) content: Option<Content>,
    pub(crate) begin: Moment,
    pub(crate) acknowledged: Option<Moment>,
    /// Without an acknowledgement: it does not happen after this. None: it may at any time.
    pub(crate) given_up: Option<Moment>,
}

impl Write {
    fn latest(&self) -> Moment {
        self.acknowledged.or(self.given_up).unwrap_or(Moment::MAX)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadFinding {
    Absent,
    /// An object whose bytes are what its metadata says.
    Whole {
        id: WriteId,
        content: Content,
    },
    Torn(String),
}

/// Where a read was made: what an old answer there means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Under load: it is stale.
    Load,
    /// After a restart: an acknowledged write is lost.
    Restart,
    /// In the store behind, at the end: the same.
    Store,
}

#[derive(Clone, Debug)]
pub(crate) struct ReadRecord {
    pub(crate) key: String,
    pub(crate) begin: Moment,
    pub(crate) end: Moment,
    pub(crate) seen: ReadFinding,
    pub(crate) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An acknowledged write is gone.
    Lost,
    /// A read is older than what was acknowledged before it began.
    Stale,
    /// An object is of no one write.
    Mixed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

/// Of one key: moments at which writes are known to have happened, in their order, and the latest begin until then.
#[derive(Default)]
struct SettledWrites(Vec<(Moment, Moment, WriteId)>);

impl SettledWrites {
    fn of(mut done: Vec<(Moment, Moment, WriteId)>) -> Self {
        done.sort_unstable();
        for at in 1..done.len() {
            if done[at].1 < done[at - 1].1 {
                (done[at].1, done[at].2) = (done[at - 1].1, done[at - 1].2);
            }
        }
        Self(done)
    }

    /// The write that began last of those that had happened before `moment`.
    fn before(&self, moment: Moment) -> Option<(Moment, WriteId)> {
        let many = self.0.partition_point(|(done, ..)| *done < moment);
        many.checked_sub(1).map(|at| (self.0[at].1, self.0[at].2))
    }
}

pub(crate) fn check(writes: &[Write], reads: &[ReadRecord]) -> Vec<Violation> {
    let by_id: HashMap<WriteId, &Write> = writes.iter().map(|write| (write.id, write)).collect();
    let mut seen_first: HashMap<WriteId, Moment> = HashMap::new();
    for read in reads {
        if let ReadFinding::Whole { id, .. } = read.seen {
            let first = seen_first.entry(id).or_insert(read.end);
            *first = read.end.min(*first);
        }
    }
    let mut done: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    let mut deletions: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    for write in writes {
        let known = [write.acknowledged, seen_first.get(&write.id).copied()].into_iter().flatten().min();
        if let Some(known) = known {
            done.entry(&write.key).or_default().push((known, write.begin, write.id));
        }
        if write.content.is_none() {
            deletions.entry(&write.key).or_default().push(write);
        }
    }
    let settled: BTreeMap<&str, SettledWrites> =
        done.into_iter().map(|(key, done)| (key, SettledWrites::of(done))).collect();
    let none = SettledWrites::default();
    let mut found = Vec::new();
    for read in reads {
        let ReadRecord { key, begin, end, place, .. } = read;
        let newest = settled.get(key.as_str()).unwrap_or(&none).before(*begin);
        let is_old = |latest: Moment| newest.is_some_and(|(newest, _)| latest < newest);
        let mixed = |why: String| Violation { kind: Kind::Mixed, detail: format!("{key} {place:?} {begin}: {why}") };
        let old = match &read.seen {
            ReadFinding::Torn(why) => {
                found.push(mixed(why.clone()));
                continue;
            }
            ReadFinding::Absent => {
                let may = |write: &&Write| write.begin < *end && !is_old(write.latest());
                newest.is_some() && !deletions.get(key.as_str()).is_some_and(|all| all.iter().any(may))
            }
            ReadFinding::Whole { id, content } => match by_id.get(id) {
                Some(write) if write.key == *key && write.content.as_ref() == Some(content) && write.begin < *end => {
                    is_old(write.latest())
                }
                Some(write) => {
                    found.push(mixed(format!("{content:?} under the name of {write:?}")));
                    continue;
                }
                None => {
                    found.push(mixed(format!("{id:?} was never written")));
                    continue;
                }
            },
        };
        if old {
            let kind = if *place == Place::Load { Kind::Stale } else { Kind::Lost };
            let newest = newest.and_then(|(_, id)| by_id.get(&id));
            let detail = format!("{key} {place:?} {begin}: {:?} after {newest:?}", read.seen);
            found.push(Violation { kind, detail });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "shared/0";

    fn content(sequence: u64) -> Content {
        Content { key: KEY.to_owned(), client: 1, sequence, bytes: 10 }
    }

    fn id(sequence: u64) -> WriteId {
        WriteId { client: 1, sequence }
    }

    fn put(sequence: u64, begin: Moment, acknowledged: impl Into<Option<Moment>>) -> Write {
        let (id, key, content) = (id(sequence), KEY.to_owned(), Some(content(sequence)));
        Write { id, key, content, begin, acknowledged: acknowledged.into(), given_up: None }
    }

    fn delete(sequence: u64, begin: Moment, acknowledged: impl Into<Option<Moment>>) -> Write {
        Write { content: None, ..put(sequence, begin, acknowledged) }
    }

    fn read(begin: Moment, seen: ReadFinding, place: Place) -> ReadRecord {
        ReadRecord { key: KEY.to_owned(), begin, end: begin + 5, seen, place }
    }

    fn whole(sequence: u64) -> ReadFinding {
        ReadFinding::Whole { id: id(sequence), content: content(sequence) }
    }

    fn kinds(writes: &[Write], reads: &[ReadRecord]) -> Vec<Kind> {
        check(writes, reads).into_iter().map(|violation| violation.kind).collect()
    }

    #[test]
    fn a_read_older_than_what_was_acknowledged_is_stale_under_load_and_a_loss_after_a_restart() {
        let writes = [put(1, 0, 10), put(2, 20, 30)];
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Load)]), [Kind::Stale]);
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Restart)]), [Kind::Lost]);
        assert_eq!(kinds(&writes, &[read(40, ReadFinding::Absent, Place::Store)]), [Kind::Lost]);
        assert_eq!(kinds(&writes, &[read(40, whole(2), Place::Restart), read(25, whole(1), Place::Load)]), []);
    }

    #[test]
    fn of_concurrent_writes_either_may_be_the_last() {
        let writes = [put(1, 0, 25), put(2, 20, 30)];
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Store), read(50, whole(2), Place::Store)]), []);
    }

    #[test]
    fn a_write_without_an_answer_may_be_there_or_not_until_it_was_seen() {
        let writes = [put(1, 0, 10), put(2, 20, None)];
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Restart)]), []);
        assert_eq!(kinds(&writes, &[read(40, whole(2), Place::Restart)]), []);
        let back = [read(40, whole(2), Place::Load), read(60, whole(1), Place::Restart)];
        assert_eq!(kinds(&writes, &back), [Kind::Lost]);
    }

    #[test]
    fn a_write_that_was_given_up_does_not_come_back_over_a_later_one() {
        let mut writes = [put(1, 0, None), put(2, 20, 30)];
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Load)]), []);
        writes[0].given_up = Some(15);
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Load)]), [Kind::Stale]);
    }

    #[test]
    fn a_deletion_is_a_write() {
        let writes = [put(1, 0, 10), delete(2, 20, 30)];
        assert_eq!(kinds(&writes, &[read(40, ReadFinding::Absent, Place::Store)]), []);
        assert_eq!(kinds(&writes, &[read(40, whole(1), Place::Store)]), [Kind::Lost]);
        let writes = [put(1, 0, 10), delete(2, 20, 30), put(3, 40, 50)];
        assert_eq!(kinds(&writes, &[read(60, ReadFinding::Absent, Place::Load)]), [Kind::Stale]);
        // Nobody has deleted anything when it began, nor before it ended.
        assert_eq!(kinds(&writes, &[read(12, ReadFinding::Absent, Place::Load)]), [Kind::Stale]);
        assert_eq!(kinds(&[], &[read(60, ReadFinding::Absent, Place::Restart)]), []);
    }

    #[test]
    fn bytes_of_no_one_write_are_mixed() {
        let writes = [put(1, 0, 10), put(2, 20, 30)];
        let torn = ReadFinding::Torn("bytes 7 to 9 are others".to_owned());
        let foreign = ReadFinding::Whole { id: id(1), content: content(2) };
        let unknown = ReadFinding::Whole { id: id(9), content: content(9) };
        for seen in [torn, foreign, unknown] {
            assert_eq!(kinds(&writes, &[read(12, seen, Place::Load)]), [Kind::Mixed]);
        }
        // From the future.
        assert_eq!(kinds(&writes, &[read(12, whole(2), Place::Load)]), [Kind::Mixed]);
    }
}
