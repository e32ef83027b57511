//! All that the clients of one state folder did and saw, over all lives of the node, and what it comes to.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::client::{Client, keys, path};
use super::history::{Kind, Moment, Place, ReadFinding, ReadRecord, Violation, Write, check};
use super::s3_calls::{get, list};
use super::store_behind::BackingStore;
use super::{BUCKET, CLIENTS, DETAILS_MAX};
use crate::LabError;
use crate::experiment::client_calls::{Caller, Door};

/// How long the node may take to bring everything to the store at the end.
pub(crate) const PUSHED_WITHIN: Duration = Duration::from_secs(180);
/// How long a key may be refused after a start, while the store comes back.
const READ_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) acknowledged: u64,
    pub(crate) by_fast_path: u64,
    /// Writes whose outcome no client learned.
    pub(crate) unanswered: u64,
    /// Reads checked: under load, after each start, and of the store.
    pub(crate) reads: u64,
    /// Reads after a start or of the store that miss an acknowledged write.
    pub(crate) lost: u64,
    /// Reads under load that are older than what was acknowledged before they began.
    pub(crate) stale: u64,
    /// Objects that are of no one write.
    pub(crate) mixed: u64,
    /// Listings after a start that differ from what is read.
    pub(crate) listings_wrong: u64,
}

impl Findings {
    pub(crate) fn add(&mut self, more: Self) {
        self.acknowledged += more.acknowledged;
        self.by_fast_path += more.by_fast_path;
        self.unanswered += more.unanswered;
        self.reads += more.reads;
        self.lost += more.lost;
        self.stale += more.stale;
        self.mixed += more.mixed;
        self.listings_wrong += more.listings_wrong;
    }

    /// An error where a promise is broken.
    pub(crate) fn verdict(&self) -> Result<(), LabError> {
        let Self { lost, stale, mixed, listings_wrong, .. } = *self;
        match lost + stale + mixed + listings_wrong {
            0 => Ok(()),
            _ => Err(LabError::Found(format!(
                "{lost} reads miss acknowledged writes, {stale} are old, {mixed} are of no one write, and \
                 {listings_wrong} listings are wrong"
            ))),
        }
    }
}

pub(crate) struct RecordedRun {
    pub(crate) clients: Vec<Client>,
    begun: Instant,
    reads: Vec<ReadRecord>,
    listings_wrong: Vec<String>,
    /// What restored backups lack.
    lacking: Vec<Violation>,
}

impl RecordedRun {
    /// Clients that do what `seed` says.
    pub(crate) fn new(seed: u64) -> Self {
        let begun = Instant::now();
        let clients = (0..CLIENTS).map(|number| Client::new(number, seed, begun)).collect();
        Self { clients, begun, reads: Vec::new(), listings_wrong: Vec::new(), lacking: Vec::new() }
    }

    fn now(&self) -> Moment {
        self.clock()()
    }

    /// Tells the time of the clients.
    pub(crate) fn clock(&self) -> impl Fn() -> Moment + use<> {
        let begun = self.begun;
        move || begun.elapsed().as_nanos() as Moment
    }

    /// Requests under way have ended with the process that they were sent to: none of them takes effect from now on.
    pub(crate) fn give_up(&mut self) {
        let now = self.now();
        self.clients.iter_mut().for_each(|client| client.give_up(now));
    }

    /// Reads and lists all keys while nobody writes; what is seen, in the keys' order. `after` names the moment.
    pub(crate) fn look(&mut self, door: &Door, after: &str) -> Result<Vec<ReadFinding>, LabError> {
        let mut caller = Caller::new(door);
        let mut all = Vec::new();
        for key in keys() {
            let begin = self.now();
            let seen = until_told(|| get(&mut caller, &path(&key)))?;
            self.reads.push(ReadRecord { key, begin, end: self.now(), seen: seen.clone(), place: Place::Restart });
            all.push(seen);
        }
        let mut listed = until_told(|| list(&mut caller, BUCKET))?;
        listed.sort_unstable();
        let read = keys().into_iter().zip(&all).filter_map(|(key, seen)| match seen {
            ReadFinding::Whole { content, .. } => Some((key, content.bytes)),
            ReadFinding::Absent | ReadFinding::Torn(_) => None,
        });
        let mut read: Vec<(String, usize)> = read.collect();
        read.sort_unstable();
        if listed != read {
            self.listings_wrong.push(format!("Listing after {after}: {listed:?}, read {read:?}"));
        }
        Ok(all)
    }

    /// Reads all keys of a node that was made of a backup, which was begun and ended at these moments: nothing may be older
    /// than what was acknowledged before the begin.
    pub(crate) fn look_at_backup(&mut self, door: &Door, (begin, end): (Moment, Moment)) -> Result<(), LabError> {
        let mut caller = Caller::new(door);
        let mut reads = Vec::new();
        for key in keys() {
            let seen = until_told(|| get(&mut caller, &path(&key)))?;
            reads.push(ReadRecord { key, begin, end, seen, place: Place::Restart });
        }
        let writes: Vec<Write> = self.clients.iter().flat_map(|client| client.writes.iter().cloned()).collect();
        let of_backup = |found: Violation| Violation { detail: format!("{}, in a backup", found.detail), ..found };
        self.lacking.extend(check(&writes, &reads).into_iter().map(of_backup));
        Ok(())
    }

    /// Compares all keys of the store, which nobody writes any more, with what Nigh gave last.
    pub(crate) fn compare(
        &mut self,
        behind: &BackingStore,
        through_nigh: Vec<ReadFinding>,
    ) -> Result<Vec<Violation>, LabError> {
        let mut differ = Vec::new();
        for (key, by_nigh) in keys().into_iter().zip(through_nigh) {
            let begin = self.now();
            let seen = behind.get(&key)?;
            if seen != by_nigh {
                let detail = format!("{key}: the store holds {seen:?}, Nigh gave {by_nigh:?}");
                differ.push(Violation { kind: Kind::Lost, detail });
            }
            self.reads.push(ReadRecord { key, begin, end: self.now(), seen, place: Place::Store });
        }
        Ok(differ)
    }

    /// What it comes to, and the first violations in words. `differ` was found besides.
    pub(crate) fn judge(self, differ: Vec<Violation>) -> (Findings, Vec<String>) {
        let (mut writes, mut reads) = (Vec::new(), self.reads);
        let by_fast_path = self.clients.iter().map(|client| client.by_fast_path).sum();
        for client in self.clients {
            writes.extend(client.writes);
            reads.extend(client.reads);
        }
        let mut found = check(&writes, &reads);
        found.extend(differ);
        found.extend(self.lacking);
        let count = |kind: Kind| found.iter().filter(|violation| violation.kind == kind).count() as u64;
        let acknowledged = writes.iter().filter(|write| write.acknowledged.is_some()).count();
        let told = found.iter().map(|violation| format!("{:?}: {}", violation.kind, violation.detail));
        let findings = Findings {
            acknowledged: acknowledged as u64,
            by_fast_path,
            unanswered: (writes.len() - acknowledged) as u64,
            reads: reads.len() as u64,
            lost: count(Kind::Lost),
            stale: count(Kind::Stale),
            mixed: count(Kind::Mixed),
            listings_wrong: self.listings_wrong.len() as u64,
        };
        (findings, told.chain(self.listings_wrong.iter().cloned()).take(DETAILS_MAX).collect())
    }
}

/// Waits until a service holds what Nigh gives, or too long: the comparison tells the difference. The node's own count
/// does not end with the pushes: a write whose push got no answer, or may have got none in a life before, is looked
/// after for as long as it may land.
pub(crate) fn wait_until_held(behind: &BackingStore, through_nigh: &[ReadFinding]) -> Result<(), LabError> {
    let began = Instant::now();
    for (key, by_nigh) in keys().iter().zip(through_nigh) {
        while behind.get(key)? != *by_nigh && began.elapsed() < PUSHED_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// What `ask` tells, asked again for a while where it is refused.
pub(crate) fn until_told<T>(mut ask: impl FnMut() -> Result<Result<T, String>, LabError>) -> Result<T, LabError> {
    let began = Instant::now();
    loop {
        match ask()? {
            Ok(told) => return Ok(told),
            Err(reason) if began.elapsed() > READ_WITHIN => {
                return Err(LabError::Request { what: "a read after a start".to_owned(), reason });
            }
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}
