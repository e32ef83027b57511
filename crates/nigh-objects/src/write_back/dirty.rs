//! Unpushed writes: the decisions of write-back, without its bytes and its I/O.
//!
//! This module decides what readers of an object see before the store has it, which object is pushed next and when, and
//! which records of the ledger may be trimmed. One object has one push under way at a time, and only its newest state
//! is ever pushed: that keeps the order of versions. `persistor` pushes, waits and reads the clock.
//!
//! An object whose push has failed waits, twice as long each time; it delays no other object.

mod entry;
mod index;
mod pushes;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use nigh_data::ObjectId;
use nigh_terms::{BucketName, Epoch, Monotonic, Namespace, ObjectKey, Version, invariant};

use self::entry::Entry;
pub use self::index::DirtyUsage;
pub use self::pushes::{NextPush, Push, StoreState};
pub use self::state::{Base, ObjectState, PossibleBases, UnpushedWrite};
use super::policy::WriteMode;

/// The limits of what may wait.
#[derive(Clone, Copy, Debug)]
pub struct DirtyLimits {
    /// Bytes of objects; ephemeral ones among them.
    pub bytes: u64,
    /// Objects and deletions.
    pub objects: usize,
    /// How long a write waits for a newer one of its object before it is pushed.
    pub delay: Duration,
    /// The wait after the first failure of a push.
    pub back_off: Duration,
    /// The longest such wait.
    pub back_off_max: Duration,
    /// How long a push without an answer may land.
    pub lands_within: Duration,
}

/// All unpushed writes.
#[derive(Debug)]
pub struct WriteBackQueue {
    limits: DirtyLimits,
    buckets: BTreeMap<(Namespace, BucketName), BTreeMap<ObjectKey, Entry>>,
    objects: usize,
    /// Writes that may be pushed before they are due.
    fresh: BTreeSet<(Monotonic, ObjectId)>,
    /// Writes whose push has failed, or that the store has and an unanswered push may still replace.
    later: BTreeSet<(Monotonic, ObjectId)>,
    /// A write of `fresh` that is due by then is due now.
    wanted_until: Monotonic,
    /// Room that was promised to writes under way.
    promised_bytes: u64,
    promised_objects: usize,
    /// The writes that the store is to get and does not have, the oldest first.
    ages: BTreeSet<(Monotonic, ObjectId)>,
    bytes: u64,
    waiting_bytes: u64,
    ephemeral: usize,
    lost: usize,
    watched: usize,
    failing: usize,
}

/// Records of the ledger that may go.
pub type TrimmableVersions = Vec<Version>;

impl WriteBackQueue {
    /// Nothing waits.
    #[must_use]
    pub const fn new(limits: DirtyLimits) -> Self {
        Self {
            limits,
            buckets: BTreeMap::new(),
            objects: 0,
            fresh: BTreeSet::new(),
            later: BTreeSet::new(),
            wanted_until: Monotonic(0),
            promised_bytes: 0,
            promised_objects: 0,
            ages: BTreeSet::new(),
            bytes: 0,
            waiting_bytes: 0,
            ephemeral: 0,
            lost: 0,
            watched: 0,
            failing: 0,
        }
    }

    /// What readers of `object` see, if the store does not have it.
    #[must_use]
    pub fn get(&self, object: &ObjectId) -> Option<&UnpushedWrite> {
        self.entry(object).map(|entry| &entry.newest)
    }

    /// Promises room to a write of `bytes` to `object` that is about to be made, if there is; `release` ends that.
    pub fn promise(&mut self, object: &ObjectId, bytes: u64) -> bool {
        let replaced = self.entry(object).map(|entry| entry.newest.becomes.bytes());
        let other_bytes = self.bytes - replaced.unwrap_or(0) + self.promised_bytes;
        let other_objects = self.objects - usize::from(replaced.is_some()) + self.promised_objects;
        let has_room = other_bytes.saturating_add(bytes) <= self.limits.bytes && other_objects < self.limits.objects;
        if has_room {
            self.promised_bytes += bytes;
            self.promised_objects += 1;
        }
        has_room
    }

    /// A write that was promised room for `bytes` has been taken, or will not come.
    pub fn release(&mut self, bytes: u64) {
        let (promised, writes) = (self.promised_bytes, self.promised_objects);
        // The sums would wrap, and no write would find room again.
        invariant!(bytes <= promised && writes > 0, "{bytes} bytes are released of {promised} for {writes} writes");
        self.promised_bytes -= bytes;
        self.promised_objects -= 1;
    }

    /// Takes a write that was acknowledged at `now`. `below` counts if no other write waits before it.
    pub fn write(
        &mut self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: ObjectState,
        below: PossibleBases,
        now: Monotonic,
    ) -> TrimmableVersions {
        let newest = UnpushedWrite { version, mode, becomes };
        let Some(mut entry) = self.take(object) else {
            let due = now.after(self.limits.delay);
            let entry = Entry {
                newest,
                since: now,
                due,
                pushing: None,
                leaves: Base::Unknown,
                pushed: None,
                base: below.base,
                attempts: below.attempts,
                doubt: Monotonic(0),
                failures: 0,
                may_lack: None,
            };
            self.put_back(object, entry);
            return Vec::new();
        };
        let before = std::mem::replace(&mut entry.newest, newest);
        let (earlier, later) = (before.version, version);
        // Only the newest state is pushed: an older one behind it would replace an acknowledged write in the store.
        invariant!(earlier < later, "the write {later} of {object} comes behind {earlier}");
        // Nothing that the journal has lost is newer than a write of now.
        entry.may_lack = None;
        if entry.pushing.is_none() && entry.pushed == Some(before.version) {
            // The one before was only looked after, and due when that ends.
            (entry.since, entry.due) = (now, now.after(self.limits.delay));
        }
        if before.mode == WriteMode::Ephemeral {
            (entry.since, entry.due) = (now, now.after(self.limits.delay));
            (entry.base, entry.attempts) = (below.base, below.attempts);
        }
        // What is being pushed is let go when that has ended: the push reads it. An ephemeral write has no record.
        let goes = entry.pushing != Some(before.version) && before.mode != WriteMode::Ephemeral;
        self.put_back(object, entry);
        goes.then_some(before.version).into_iter().collect()
    }

    /// A push of `object` from an earlier life may still land: for as long it is looked after.
    pub fn doubt(&mut self, object: &ObjectId, now: Monotonic) {
        if let Some(mut entry) = self.take(object) {
            entry.doubt = now.after(self.limits.lands_within);
            entry.has_attempted(Base::Unknown);
            self.put_back(object, entry);
        }
    }

    /// The journal was found damaged and may have lost newer writes of `object`, all of epochs before `before`. Its push
    /// looks at the store first, and soon: until then readers see what waits.
    pub fn may_lack(&mut self, object: &ObjectId, before: Epoch, now: Monotonic) {
        if let Some(mut entry) = self.take(object) {
            (entry.may_lack, entry.due) = (Some(before), now);
            self.put_back(object, entry);
        }
    }

    /// Takes a write of an earlier life, the older of an object before the newer. The store may hold what `attempts`
    /// say, and whatever an older one of them was to replace or to leave: all of that is Nigh's own.
    pub fn recover(
        &mut self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: ObjectState,
        below: PossibleBases,
        now: Monotonic,
    ) {
        let older = self.get(object).map(|older| older.becomes.leaves());
        let left: Vec<Base> = older.map_or_else(Vec::new, |left| {
            [left, below.base.clone()].into_iter().chain(below.attempts.clone()).collect()
        });
        self.write(object, version, mode, becomes, below, now);
        if !left.is_empty()
            && let Some(mut entry) = self.take(object)
        {
            left.into_iter().for_each(|left| entry.has_attempted(left));
            self.put_back(object, entry);
        }
    }

    /// The memory of an ephemeral write was needed. Its room is free; who reads the object is told until it is written
    /// anew or deleted, as the store may have an older state of it. True if that write is the newest still.
    pub fn lost(&mut self, object: &ObjectId, version: Version) -> bool {
        let Some(mut entry) = self.take(object) else { return false };
        let is_it = entry.newest.version == version && entry.newest.mode == WriteMode::Ephemeral;
        if is_it {
            entry.newest.becomes = ObjectState::Lost;
        }
        self.put_back(object, entry);
        is_it
    }

    /// What the store may hold below a write that comes now, if another waits: what that replaces, and what pushes have
    /// left or may leave before the write is acknowledged.
    pub fn below(&self, object: &ObjectId) -> Option<PossibleBases> {
        let entry = self.entry(object)?;
        let mut attempts = entry.attempts.clone();
        if entry.pushing.is_some() {
            attempts.push(entry.leaves.clone());
        }
        if entry.newest.mode != WriteMode::Ephemeral {
            attempts.push(entry.newest.becomes.leaves());
        }
        Some(PossibleBases { base: entry.base.clone(), attempts })
    }

    /// Forgets what is to be another's, pushed or not.
    pub fn forget(&mut self, is_gone: impl Fn(&ObjectId) -> bool) {
        let named = self.all().map(|(namespace, bucket, key, ..)| ObjectId {
            namespace: namespace.clone(),
            bucket: bucket.clone(),
            key: key.clone(),
        });
        let gone: Vec<ObjectId> = named.filter(|object| is_gone(object)).collect();
        for object in gone {
            let _another_has_it = self.take(&object);
        }
    }

    /// How many objects of a bucket wait.
    pub fn count(&self, namespace: &Namespace, bucket: &BucketName) -> usize {
        self.buckets.get(&(namespace.clone(), bucket.clone())).map_or(0, BTreeMap::len)
    }

    /// What waits of a bucket's keys that begin with `prefix` and sort behind `after`, in the order of keys.
    pub fn keys<'a>(
        &'a self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a UnpushedWrite)> + use<'a> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let waiting = self.buckets.get(&(namespace.clone(), bucket.clone())).into_iter();
        waiting
            .flat_map(move |entries| entries.range::<str, _>((from, Bound::Unbounded)))
            .take_while(move |(key, _)| key.as_str().starts_with(prefix))
            .map(|(key, entry)| (key, &entry.newest))
    }

    /// Everything by name, each with how often its push has failed in a row.
    pub fn all(&self) -> impl Iterator<Item = (&Namespace, &BucketName, &ObjectKey, &UnpushedWrite, u32)> {
        self.buckets.iter().flat_map(|((namespace, bucket), entries)| {
            entries.iter().map(move |(key, entry)| (namespace, bucket, key, &entry.newest, entry.failures))
        })
    }

    fn entry(&self, object: &ObjectId) -> Option<&Entry> {
        self.buckets.get(&(object.namespace.clone(), object.bucket.clone()))?.get(&object.key)
    }
}
