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

/// The limits of unpushed writes.
#[derive(Clone, Copy, Debug)]
pub struct DirtyLimits {
    /// The most bytes of objects, including ephemeral ones.
    pub bytes: u64,
    /// The most objects and deletions.
    pub objects: usize,
    /// How long a write waits for a newer one of its object before it is pushed.
    pub delay: Duration,
    /// The wait after the first failure of a push.
    pub back_off: Duration,
    /// The longest wait after a failure.
    pub back_off_max: Duration,
    /// How long a push without an answer may still be carried out.
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
    /// Writes of `fresh` that are due by this time are due now.
    wanted_until: Monotonic,
    /// The bytes promised to writes under way.
    promised_bytes: u64,
    promised_objects: usize,
    /// The writes that must be pushed and that the store does not have, the oldest first.
    ages: BTreeSet<(Monotonic, ObjectId)>,
    bytes: u64,
    waiting_bytes: u64,
    ephemeral: usize,
    lost: usize,
    watched: usize,
    failing: usize,
}

/// Versions whose ledger records may be trimmed.
pub type TrimmableVersions = Vec<Version>;

impl WriteBackQueue {
    /// An empty queue.
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

    /// The state of `object` that readers see, if the store does not have it.
    #[must_use]
    pub fn get(&self, object: &ObjectId) -> Option<&UnpushedWrite> {
        self.entry(object).map(|entry| &entry.newest)
    }

    /// Promises room for a write of `bytes` to `object`; `release` ends the promise. False if there is no room.
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

    /// Ends a promise of `bytes`: the write was added, or will not be made.
    pub fn release(&mut self, bytes: u64) {
        let (promised, writes) = (self.promised_bytes, self.promised_objects);
        // Otherwise the sums would wrap, and no write would find room again.
        invariant!(bytes <= promised && writes > 0, "{bytes} bytes are released of {promised} for {writes} writes");
        self.promised_bytes -= bytes;
        self.promised_objects -= 1;
    }

    /// Adds a write acknowledged at `now`. `below` counts only if the object has no other unpushed write.
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
                contested: false,
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
            // The former state was in the store already and only watched; its due time was the end of the watch.
            (entry.since, entry.due) = (now, now.after(self.limits.delay));
        }
        if before.mode == WriteMode::Ephemeral {
            (entry.since, entry.due) = (now, now.after(self.limits.delay));
            (entry.base, entry.attempts) = (below.base, below.attempts);
        }
        // A state that is being pushed keeps its record until the push has ended, because the push reads it. An
        // ephemeral write has no record.
        let goes = entry.pushing != Some(before.version) && before.mode != WriteMode::Ephemeral;
        self.put_back(object, entry);
        goes.then_some(before.version).into_iter().collect()
    }

    /// A push of `object` from an earlier incarnation may still be carried out, so the object is watched as long as it
    /// may.
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

    /// Adds a write of an earlier incarnation; of one object, the older first. The store may have what `attempts` say,
    /// and whatever an older write was to replace or to leave: all of that is Nigh's own.
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

    /// The only bytes of an ephemeral write were evicted. Readers of the object get an error until it is written again
    /// or deleted, because the store may have an older state. True if the write is still the newest.
    pub fn lost(&mut self, object: &ObjectId, version: Version) -> bool {
        let Some(mut entry) = self.take(object) else { return false };
        let is_it = entry.newest.version == version && entry.newest.mode == WriteMode::Ephemeral;
        if is_it {
            entry.newest.becomes = ObjectState::Lost;
        }
        self.put_back(object, entry);
        is_it
    }

    /// What the store may have below a write made now, if another write is unpushed: what that one replaces, and what
    /// pushes have left or may leave before this write is acknowledged.
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

    /// Forgets the objects whose home is elsewhere now.
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

    /// The number of a bucket's unpushed objects.
    pub fn count(&self, namespace: &Namespace, bucket: &BucketName) -> usize {
        self.buckets.get(&(namespace.clone(), bucket.clone())).map_or(0, BTreeMap::len)
    }

    /// A bucket's unpushed objects whose keys begin with `prefix` and sort after `after`, in the order of keys.
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

    /// All unpushed writes by name, each with the number of its failed pushes in a row.
    pub fn all(&self) -> impl Iterator<Item = (&Namespace, &BucketName, &ObjectKey, &UnpushedWrite, u32)> {
        self.buckets.iter().flat_map(|((namespace, bucket), entries)| {
            entries.iter().map(move |(key, entry)| (namespace, bucket, key, &entry.newest, entry.failures))
        })
    }

    fn entry(&self, object: &ObjectId) -> Option<&Entry> {
        self.buckets.get(&(object.namespace.clone(), object.bucket.clone()))?.get(&object.key)
    }
}
