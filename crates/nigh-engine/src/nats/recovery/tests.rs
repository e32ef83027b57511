//! Recovery compared with a model: homes append, store, trim and copy; messages arrive twice, in any order, or not at
//! all.

use nigh_terms::{BucketName, Incarnation, Namespace, NodeId, ObjectKey, Sequence};
use proptest::prelude::*;

use super::super::envelope::{self, EpochRecord, Frame, encode};
use super::*;
use crate::commit_format::crc32c;
use crate::ledger::{Change, PieceId, RequestId};

const SHARD: ShardId = ShardId(1);

/// One step of a home.
#[derive(Clone, Debug)]
enum Act {
    /// A new home takes the shard.
    Take,
    /// The writes of these keys go in one message.
    Group(Vec<u8>),
    /// A write of this key whose body has this many chunks.
    Large(u8, usize),
    /// A chunk that no write names.
    Abandon,
    /// The store has the nth unpushed write, and a message records that.
    Stored(usize),
    /// Everything before the oldest needed message is removed.
    Trim,
    /// The nth unpushed write is copied to the end.
    Copy(usize),
    /// The last message is written again.
    Again,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => Just(Act::Take),
        5 => prop::collection::vec(0..5_u8, 1..4).prop_map(Act::Group),
        2 => (0..5_u8, 1..4_usize).prop_map(|(key, chunks)| Act::Large(key, chunks)),
        1 => Just(Act::Abandon),
        4 => any::<usize>().prop_map(Act::Stored),
        2 => Just(Act::Trim),
        1 => any::<usize>().prop_map(Act::Copy),
        1 => Just(Act::Again),
    ]
}

struct LiveCommit {
    commit: Commit,
    place: u64,
}

/// A stream, and what recovery must find in it.
#[derive(Default)]
struct World {
    messages: BTreeMap<u64, Bytes>,
    next: u64,
    epoch: Epoch,
    number: u64,
    sequence: u64,
    trimmed: u64,
    live: BTreeMap<Version, LiveCommit>,
    stored_once: Vec<Version>,
}

impl World {
    fn begin() -> Self {
        let mut world = Self { next: 1, ..Self::default() };
        world.act(Act::Take);
        world
    }

    fn push(&mut self, records: &[envelope::Record]) -> u64 {
        self.number += 1;
        let frame = Frame { shard: SHARD, epoch: self.epoch, number: self.number, trimmed: self.trimmed };
        let place = self.next;
        self.next += 1;
        self.messages.insert(place, encode(&frame, records));
        place
    }

    fn chunk(&mut self) -> PieceRef {
        let body = Bytes::from(self.next.to_be_bytes().to_vec());
        let (bytes, crc) = (body.len() as u32, crc32c(&body));
        let place = self.push(&[envelope::Record { content: Content::Chunk, body }]);
        PieceRef { id: PieceId(place), bytes, crc }
    }

    fn commit(&mut self, key: u8, pieces: Vec<PieceRef>) -> Commit {
        self.sequence += 1;
        let record = Record {
            request: RequestId(u128::from(self.next) << 32 | u128::from(self.sequence)),
            namespace: Namespace::new("tenant").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(&key.to_string()).unwrap(),
            change: Change::Put { about: Bytes::new() },
        };
        let version = Version { epoch: self.epoch, sequence: Sequence(self.sequence) };
        Commit { shard: SHARD, version, record, pieces }
    }

    fn append(&mut self, commits: Vec<Commit>) {
        let body = || Bytes::from_static(b"inline");
        let records: Vec<_> = commits
            .iter()
            .map(|commit| envelope::Record { content: Content::Commit(Box::new(commit.clone())), body: body() })
            .collect();
        let place = self.push(&records);
        self.live.extend(commits.into_iter().map(|commit| (commit.version, LiveCommit { commit, place })));
    }

    fn nth(&self, nth: usize) -> Option<Version> {
        self.live.keys().nth(nth % self.live.len().max(1)).copied()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Take => {
                (self.epoch, self.number, self.sequence) = (Epoch(0), 0, 0);
                let node = NodeId("n".to_owned());
                let taking = EpochRecord { claim: 1, nonce: self.next, incarnation: Incarnation(1), node };
                let trimmed = std::mem::take(&mut self.trimmed);
                let place = self.push(&[envelope::Record { content: Content::Epoch(taking), body: Bytes::new() }]);
                (self.epoch, self.number, self.trimmed) = (Epoch(place), 0, trimmed);
            }
            Act::Group(keys) => {
                let commits = keys.into_iter().map(|key| self.commit(key, Vec::new())).collect();
                self.append(commits);
            }
            Act::Large(key, chunks) => {
                let pieces = (0..chunks).map(|_| self.chunk()).collect();
                let commit = self.commit(key, pieces);
                self.append(vec![commit]);
            }
            Act::Abandon => drop(self.chunk()),
            Act::Stored(nth) => {
                let Some(version) = self.nth(nth) else { return };
                let key = self.live[&version].commit.record.key.clone();
                let is_done = |known: &Version, one: &LiveCommit| *known <= version && one.commit.record.key == key;
                let done: Vec<_> =
                    self.live.iter().filter(|(known, one)| is_done(known, one)).map(|(&v, _)| v).collect();
                self.live.retain(|known, _| !done.contains(known));
                self.stored_once.extend(&done);
                self.push(&[envelope::Record { content: Content::Stored(done), body: Bytes::new() }]);
            }
            Act::Trim => {
                let chunks = |one: &LiveCommit| one.commit.pieces.iter().map(|piece| piece.id.0).collect::<Vec<_>>();
                let needed = self.live.values().flat_map(|one| chunks(one).into_iter().chain([one.place]));
                self.trimmed = needed.min().unwrap_or(self.next);
                // As if each stored write had been sent twice.
                let stored = self.stored_once.clone();
                self.push(&[envelope::Record { content: Content::Stored(stored), body: Bytes::new() }]);
                let trimmed = self.trimmed;
                self.messages.retain(|&place, _| place >= trimmed || Epoch(place) == self.epoch);
            }
            Act::Copy(nth) => {
                let Some(version) = self.nth(nth) else { return };
                let pieces = (0..self.live[&version].commit.pieces.len()).map(|_| self.chunk()).collect();
                let commit = Commit { pieces, ..self.live[&version].commit.clone() };
                self.append(vec![commit]);
            }
            Act::Again => {
                let last = self.messages.last_key_value().map(|(_, message)| message.clone());
                if let Some(last) = last.filter(|_| self.number > 0) {
                    self.messages.insert(self.next, last);
                    self.next += 1;
                }
            }
        }
    }

    /// Recovers from these messages, in reverse order.
    fn recovered(&self, messages: &BTreeMap<u64, Bytes>) -> Outcome {
        let mut recovery = Recovery::new(SHARD, "stream", 1);
        for (&place, message) in messages.iter().rev() {
            recovery.take(place, message.len() as u64, message).unwrap();
        }
        recovery.finish(self.next - 1)
    }
}

proptest! {
    #[test]
    fn a_home_finds_what_is_live_and_a_message_that_is_lost_or_damaged_is_told(
        acts in prop::collection::vec(act(), 1..40),
        lost in any::<prop::sample::Index>(),
        flipped in any::<prop::sample::Index>(),
    ) {
        let mut world = World::begin();
        acts.into_iter().for_each(|act| world.act(act));
        world.act(Act::Take);
        let whole = world.recovered(&world.messages);
        prop_assert_eq!(&whole.damage[..], []);
        let found: Vec<_> = whole.records.iter().map(|one| (one.version, one.record.clone())).collect();
        let live: Vec<_> = world.live.iter().map(|(&version, one)| (version, one.commit.record.clone())).collect();
        prop_assert_eq!(found, live);
        prop_assert_eq!(whole.index.unknown(), Vec::<u64>::new());

        let places: Vec<u64> = world.messages.range(whole.index.trimmed()..world.next - 1).map(|(&place, _)| place).collect();
        prop_assume!(!places.is_empty());
        let place = places[lost.index(places.len())];
        let mut left = world.messages.clone();
        left.remove(&place);
        // If the lost message recorded the trim, more messages count as missing.
        let told = world.recovered(&left).damage;
        prop_assert!(told.iter().any(|one| one.offset == place && one.kind == DamageKind::Missing), "{place} in {told:?}");

        let mut message = world.messages[&place].to_vec();
        let at = flipped.index(message.len());
        message[at] ^= 1;
        left.insert(place, message.into());
        let told = world.recovered(&left).damage;
        prop_assert!(told.iter().any(|one| one.offset == place), "{place} in {told:?}");
    }
}
