//! The journal compared with a map, under all requests of a writer and restarts in between.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::image::MemoryFolder;
use super::*;

#[derive(Clone, Debug)]
enum Act {
    Put {
        key: u8,
        bytes: usize,
    },
    Large {
        key: u8,
        bytes: usize,
    },
    Delete {
        key: u8,
    },
    Amend {
        key: u8,
    },
    /// The store has the nth record.
    Stored {
        nth: usize,
    },
    /// The nth request is repeated.
    Again {
        nth: usize,
    },
    Abandon {
        bytes: usize,
    },
    Place,
    Settle,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..6_u8, 0..3000_usize).prop_map(|(key, bytes)| Act::Put { key, bytes }),
        2 => (0..6_u8, 1..9000_usize).prop_map(|(key, bytes)| Act::Large { key, bytes }),
        1 => (0..6_u8).prop_map(|key| Act::Delete { key }),
        1 => (0..6_u8).prop_map(|key| Act::Amend { key }),
        5 => any::<usize>().prop_map(|nth| Act::Stored { nth }),
        1 => any::<usize>().prop_map(|nth| Act::Again { nth }),
        1 => (1..3000_usize).prop_map(|bytes| Act::Abandon { bytes }),
        1 => Just(Act::Place),
        1 => Just(Act::Settle),
        1 => Just(Act::Reopen),
    ]
}

/// The records that the journal must have.
#[derive(Default)]
struct ExpectedJournal {
    live: BTreeMap<Version, (Record, Bytes)>,
    answered: Vec<(Record, Version)>,
    bodies: BTreeMap<Version, Bytes>,
    last: Version,
}

impl ExpectedJournal {
    fn newest(&mut self, version: Version) {
        assert!(version > self.last, "{version} after {}", self.last);
        self.last = version;
    }

    fn stored(&mut self, version: Version) {
        let Some((record, _)) = self.live.get(&version) else { return };
        let key = record.key.clone();
        self.live.retain(|&known, (record, _)| known > version || record.key != key);
    }

    /// The records of a reopened journal. If it was full, it could not record which writes are stored, and has those as
    /// well; but never an older write of an object without the newer ones.
    fn reopened(&mut self, found: Vec<(Version, Record)>, was_full: bool) {
        let found: BTreeMap<Version, Record> = found.into_iter().collect();
        for (version, (record, _)) in &self.live {
            assert_eq!(found.get(version), Some(record));
        }
        for (version, record) in found.into_iter().rev() {
            if !self.live.contains_key(&version) {
                assert!(was_full, "{version} is stored");
                assert!(self.answered.contains(&(record.clone(), version)), "{version} was never written");
                let later: Vec<_> = self.answered.iter().filter(|(other, _)| other.key == record.key).collect();
                assert!(later.iter().all(|(_, other)| *other <= version || self.live.contains_key(other)), "{version}");
                let body = self.bodies.get(&version).cloned().unwrap_or_default();
                self.live.insert(version, (record, body));
            }
        }
    }
}

async fn run(acts: Vec<Act>) {
    let folder = MemoryFolder::new();
    let (mut journal, _) = open(&folder, 5).unwrap();
    let mut expected = ExpectedJournal::default();
    for (step, act) in acts.into_iter().enumerate() {
        let request = step as u128;
        let about = Bytes::from(vec![step as u8; step % 90]);
        let mut wanted = None;
        match act {
            Act::Put { key, bytes } => {
                wanted =
                    Some((record(request, &key.to_string(), Change::Put { about }), content(request, bytes), false));
            }
            Act::Large { key, bytes } => {
                wanted =
                    Some((record(request, &key.to_string(), Change::Put { about }), content(request, bytes), true));
            }
            Act::Delete { key } => {
                wanted = Some((record(request, &key.to_string(), Change::Delete { about }), Bytes::new(), false));
            }
            Act::Amend { key } => {
                wanted = Some((record(request, &key.to_string(), Change::Amend { about }), Bytes::new(), false));
            }
            Act::Stored { nth } => {
                let version = expected.live.keys().nth(nth % expected.live.len().max(1)).copied();
                let version = version.unwrap_or(expected.last);
                journal.stored(SHARD, version).await.unwrap();
                expected.stored(version);
            }
            Act::Again { nth } if !expected.answered.is_empty() => {
                let (record, version) = &expected.answered[nth % expected.answered.len()];
                // A request whose segment was reused before a restart is forgotten; one with a needed record never is.
                if expected.live.contains_key(version) {
                    let again = append(&journal, record.clone(), Bytes::new()).await.unwrap();
                    assert_eq!(again, AppendResult { version: *version, repeated: true });
                }
            }
            Act::Again { .. } => {}
            Act::Abandon { bytes } => drop(journal.stage(SHARD, content(request, bytes)).await),
            Act::Place => expected.newest(journal.place(SHARD)),
            Act::Settle => assert!(matches!(journal.settle(SHARD).await, Ok(()) | Err(LedgerError::Full))),
            Act::Reopen => {
                let usage = journal.usage();
                drop(journal);
                let (opened, recovered) = open(&folder, 5).unwrap();
                journal = opened;
                // The unfinished rest of an earlier incarnation may, very rarely, look like a torn tail.
                assert_eq!(recovered.damage[..], []);
                let found = recovered.records.into_iter().map(|one| (one.version, one.record)).collect();
                expected.reopened(found, usage.files == usage.files_max);
            }
        }
        if let Some((record, body, in_pieces)) = wanted {
            let done = if in_pieces {
                append_pieces(&journal, record.clone(), body.clone(), 3500).await
            } else {
                append(&journal, record.clone(), body.clone()).await
            };
            match done {
                Ok(done) => {
                    assert!(!done.repeated);
                    expected.newest(done.version);
                    expected.answered.push((record.clone(), done.version));
                    expected.bodies.insert(done.version, body.clone());
                    expected.live.insert(done.version, (record, body));
                }
                Err(error) => assert_eq!(error, LedgerError::Full),
            }
        }
        assert_eq!(journal.usage().records, expected.live.len() as u64);
        if let Some((version, (_, body))) = expected.live.iter().nth(step % expected.live.len().max(1)) {
            assert_eq!(read(&journal, *version).await.unwrap(), body);
        }
    }
    for (version, (_, body)) in &expected.live {
        assert_eq!(read(&journal, *version).await.unwrap(), body);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_journal_is_a_map_of_what_the_store_does_not_hold_yet(acts in prop::collection::vec(act(), 1..160)) {
        runtime().block_on(run(acts));
    }
}
