//! What was acknowledged and is not in the store yet: the decisions of write-back, without its bytes and its I/O.
//!
//! It decides what readers of an object see before the store has it, which object is pushed next and when, and which
//! records of the ledger nobody needs any more. Of one object one push is under way at a time, and only its newest
//! state is ever pushed: that is the version order. It never pushes, waits or reads a clock; `persistor` does.
//!
//! An object whose push failed waits, twice as long each time; it holds no other up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{BucketName, Monotonic, Namespace, ObjectKey, Version};

use super::policy::WriteMode;
use crate::{ETag, ObjectId, ObjectMeta};

/// Pushes without an answer that are remembered of one object.
const ATTEMPTS_MAX: usize = 8;

/// What an object becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// An object of which this is known.
    Put(Arc<ObjectMeta>),
    /// Nothing.
    Gone,
    /// Nobody knows: its bytes are damaged in the journal, or it was ephemeral and its memory was needed. It is not pushed.
    Lost,
}

impl Becomes {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Put(meta) => meta.size,
            Self::Gone | Self::Lost => 0,
        }
    }

    /// What the store holds once it has this.
    pub(crate) fn leaves(&self) -> Base {
        match self {
            Self::Put(meta) => Base::Holds(meta.etag.clone()),
            Self::Gone | Self::Lost => Base::Absent,
        }
    }
}

/// What the store holds below what was not pushed, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Base {
    /// Nobody has asked.
    #[default]
    Unknown,
    /// No object.
    Absent,
    /// An object with this entity tag.
    Holds(ETag),
}

/// What the store may hold below a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    /// What the write is to replace.
    pub(crate) base: Base,
    /// What pushes of earlier writes have left, or may leave.
    pub(crate) attempts: Vec<Base>,
}

/// The newest state of an object that the store does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpushed {
    /// Its place in the order of writes.
    pub(crate) version: Version,
    /// How it was acknowledged.
    pub(crate) mode: WriteMode,
    /// What the object is.
    pub(crate) becomes: Becomes,
}

impl Unpushed {
    /// Whether it comes to the store at some time.
    pub(crate) fn is_pushed_at_last(&self) -> bool {
        self.mode != WriteMode::Ephemeral && self.becomes != Becomes::Lost
    }
}

/// A push to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Push {
    pub(crate) object: ObjectId,
    pub(crate) version: Version,
    pub(crate) mode: WriteMode,
    pub(crate) becomes: Becomes,
    pub(crate) base: Base,
    /// What pushes of this object without an answer may have left in the store, or may yet.
    pub(crate) attempts: Vec<Base>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Make this push, and say how it ended.
    Push(Box<Push>),
    /// Nothing is due before this.
    At(Monotonic),
    /// Nothing waits.
    Idle,
}

/// The limits of what may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirtyLimits {
    /// Bytes of objects; ephemeral ones among them.
    pub(crate) bytes: u64,
    /// Objects and deletions.
    pub(crate) objects: usize,
    /// How long a write waits for a newer one of its object before it is pushed.
    pub(crate) delay: Duration,
    /// The wait after the first failure of a push.
    pub(crate) back_off: Duration,
    /// The longest such wait.
    pub(crate) back_off_max: Duration,
    /// How long a push without an answer may land.
    pub(crate) lands_within: Duration,
}

#[derive(Debug)]
struct Entry {
    newest: Unpushed,
    /// When the oldest state that the store does not have was acknowledged.
    since: Monotonic,
    /// When it is to be pushed. It stands in the queue under this, unless it is being pushed or is ephemeral.
    due: Monotonic,
    /// The state that is being pushed.
    pushing: Option<Version>,
    /// What the last push that began leaves in the store.
    leaves: Base,
    /// The state that was pushed last.
    pushed: Option<Version>,
    base: Base,
    attempts: Vec<Base>,
    /// Until then a push without an answer may land, over a later one too.
    doubt: Monotonic,
    failures: u32,
}

impl Entry {
    /// Whether the store has its newest state, and it is only looked after.
    fn is_watched(&self) -> bool {
        self.pushed == Some(self.newest.version)
    }

    /// Whether it is kept in memory alone, and whether it was.
    fn ephemeral_and_lost(&self) -> (bool, bool) {
        let ephemeral = self.newest.mode == WriteMode::Ephemeral;
        (ephemeral, ephemeral && self.newest.becomes == Becomes::Lost)
    }

    fn is_queued(&self) -> bool {
        self.pushing.is_none() && self.newest.is_pushed_at_last()
    }

    /// The store may hold this, left by an earlier push.
    fn has_attempted(&mut self, left: Base) {
        if !self.attempts.contains(&left) {
            if self.attempts.len() == ATTEMPTS_MAX {
                self.attempts.remove(0);
            }
            self.attempts.push(left);
        }
    }

    /// Whether it may be pushed before it is due: it has not failed, and is not only looked after.
    fn may_hurry(&self) -> bool {
        self.failures == 0 && !self.is_watched()
    }
}

/// What all of it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyUsage {
    /// Objects and deletions that the store does not have.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How many of the objects are ephemeral.
    pub ephemeral: usize,
    /// How many of these are lost: their memory was needed, and who reads them is told.
    pub lost: usize,
    /// How many objects and deletions the store has already, and are kept until no earlier push can land over them.
    pub watched: usize,
    /// How many have failed to be pushed and wait for the next try.
    pub failing: usize,
    /// How long the oldest waits to be pushed.
    pub oldest: Duration,
    /// Writes kept under another key since the start, because somebody else had written theirs.
    pub conflicts: u64,
    /// Objects and deletions whose bucket the store does not have any more.
    pub homeless: usize,
}

impl DirtyUsage {
    /// Objects and deletions that the store does not have and is to get.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.objects - self.ephemeral - self.watched
    }
}

/// All that is not in the store.
#[derive(Debug)]
pub(crate) struct Dirty {
    limits: DirtyLimits,
    buckets: BTreeMap<(Namespace, BucketName), BTreeMap<ObjectKey, Entry>>,
    objects: usize,
    /// What may be pushed before it is due.
    fresh: BTreeSet<(Monotonic, ObjectId)>,
    /// What has failed, or is only looked after.
    later: BTreeSet<(Monotonic, ObjectId)>,
    /// What of `fresh` is due until then is due now.
    wanted_until: Monotonic,
    /// Room that writes under way were promised.
    promised_bytes: u64,
    promised_objects: usize,
    /// The oldest first, of those that the store does not have and is to get.
    ages: BTreeSet<(Monotonic, ObjectId)>,
    bytes: u64,
    ephemeral: usize,
    lost: usize,
    watched: usize,
    failing: usize,
}

/// Records of the ledger that may go.
pub(crate) type Settled = Vec<Version>;

impl Dirty {
    pub(crate) const fn new(limits: DirtyLimits) -> Self {
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
            ephemeral: 0,
            lost: 0,
            watched: 0,
            failing: 0,
        }
    }

    /// What readers of `object` see, if the store does not have it.
    pub(crate) fn get(&self, object: &ObjectId) -> Option<&Unpushed> {
        self.entry(object).map(|entry| &entry.newest)
    }

    /// Promises room to a write of `bytes` to `object` that is about to be made, if there is; `release` ends that.
    pub(crate) fn promise(&mut self, object: &ObjectId, bytes: u64) -> bool {
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
    pub(crate) fn release(&mut self, bytes: u64) {
        self.promised_bytes -= bytes;
        self.promised_objects -= 1;
    }

    /// Takes a write that was acknowledged at `now`. `below` counts if no other write waits before it.
    pub(crate) fn write(
        &mut self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: Becomes,
        below: Below,
        now: Monotonic,
    ) -> Settled {
        let newest = Unpushed { version, mode, becomes };
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
            };
            self.put_back(object, entry);
            return Vec::new();
        };
        let before = std::mem::replace(&mut entry.newest, newest);
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
    pub(crate) fn doubt(&mut self, object: &ObjectId, now: Monotonic) {
        if let Some(mut entry) = self.take(object) {
            entry.doubt = now.after(self.limits.lands_within);
            entry.has_attempted(Base::Unknown);
            self.put_back(object, entry);
        }
    }

    /// Takes a write of an earlier life, the older of an object before the newer. The store may hold what `attempts`
    /// say, and whatever an older one of them was to replace or to leave: all of that is Nigh's own.
    pub(crate) fn recover(
        &mut self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: Becomes,
        below: Below,
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
    pub(crate) fn lost(&mut self, object: &ObjectId, version: Version) -> bool {
        let Some(mut entry) = self.take(object) else { return false };
        let is_it = entry.newest.version == version && entry.newest.mode == WriteMode::Ephemeral;
        if is_it {
            entry.newest.becomes = Becomes::Lost;
        }
        self.put_back(object, entry);
        is_it
    }

    /// Pushes `object` as soon as possible, if it waits; the version after whose push it is in the store.
    pub(crate) fn want(&mut self, object: &ObjectId) -> Option<Version> {
        let mut entry = self.take(object)?;
        if entry.may_hurry() {
            entry.due = Monotonic(0);
        }
        let version = (entry.newest.mode != WriteMode::Ephemeral).then_some(entry.newest.version);
        self.put_back(object, entry);
        version
    }

    /// Makes everything due that was acknowledged until `now` and has not failed.
    pub(crate) fn want_all(&mut self, now: Monotonic) {
        // Nothing of it is due later than this.
        self.wanted_until = now.after(self.limits.delay);
    }

    /// All that is to be pushed.
    pub(crate) fn waiting(&self) -> Vec<(ObjectId, Version)> {
        let waits = |object: &ObjectId| {
            let newest = &self.entry(object)?.newest;
            (!matches!(newest.becomes, Becomes::Lost)).then(|| (object.clone(), newest.version))
        };
        self.ages.iter().filter_map(|(_, object)| waits(object)).collect()
    }

    /// What to push now. In a `hurry`, when room is short, what is not due goes too.
    pub(crate) fn next(&mut self, now: Monotonic, hurry: bool) -> Next {
        let is_due = |(due, _): &&(Monotonic, ObjectId)| *due <= now;
        let is_wanted = |(due, _): &&(Monotonic, ObjectId)| hurry || *due <= now.max(self.wanted_until);
        let later = self.later.first().filter(is_due);
        let fresh = self.fresh.first().filter(is_wanted);
        let Some((_, object)) = later.into_iter().chain(fresh).min().cloned() else {
            let dues = self.later.first().into_iter().chain(self.fresh.first());
            return dues.map(|(due, _)| *due).min().map_or(Next::Idle, Next::At);
        };
        let Some(mut entry) = self.take(&object) else { return Next::Idle };
        let Unpushed { version, mode, becomes } = entry.newest.clone();
        (entry.pushing, entry.leaves) = (Some(version), becomes.leaves());
        let (base, attempts) = (entry.base.clone(), entry.attempts.clone());
        self.put_back(&object, entry);
        Next::Push(Box::new(Push { object, version, mode, becomes, base, attempts }))
    }

    /// A push has ended, and the store holds what was pushed. If an earlier one may still land over it, the object
    /// waits on, and is looked after when that can no longer happen.
    pub(crate) fn pushed(&mut self, object: &ObjectId, version: Version, stored: Base, now: Monotonic) -> Settled {
        let Some(mut entry) = self.take(object) else { return Vec::new() };
        if entry.pushing.take_if(|pushing| *pushing == version).is_none() {
            self.put_back(object, entry);
            return Vec::new();
        }
        (entry.base, entry.pushed, entry.failures) = (stored, Some(version), 0);
        if now >= entry.doubt {
            entry.attempts.clear();
        }
        let is_newest = entry.newest.version == version;
        if is_newest && entry.attempts.is_empty() {
            return vec![version];
        }
        if is_newest {
            entry.due = entry.doubt;
        } else {
            // The newer one was acknowledged while this was on its way.
            (entry.since, entry.due) = (now, now.after(self.limits.delay));
        }
        self.put_back(object, entry);
        if is_newest { Vec::new() } else { vec![version] }
    }

    /// A push has failed. `attempted` is what it may have left in the store all the same, or may yet; `base` what the
    /// store was seen to hold, if it was asked.
    pub(crate) fn failed(
        &mut self,
        object: &ObjectId,
        version: Version,
        attempted: Option<Base>,
        base: Option<Base>,
        now: Monotonic,
    ) -> Settled {
        let Some(mut entry) = self.take(object) else { return Vec::new() };
        let mut settled = Vec::new();
        if entry.pushing.take_if(|pushing| *pushing == version).is_some() {
            if entry.newest.version != version {
                settled.push(version);
            }
            entry.failures = entry.failures.saturating_add(1);
            let doubled = self.limits.back_off.saturating_mul(1 << (entry.failures - 1).min(16));
            entry.due = now.after(doubled.min(self.limits.back_off_max));
            if let Some(attempted) = attempted {
                entry.doubt = now.after(self.limits.lands_within);
                entry.has_attempted(attempted);
            }
            if let Some(base) = base {
                entry.base = base;
            }
        }
        self.put_back(object, entry);
        settled
    }

    /// The push of `version` has ended with its state kept under another key: others have written `object`. A newer
    /// state, acknowledged meanwhile, stays, and is to replace what it was to replace before: it meets the same.
    pub(crate) fn kept_apart(&mut self, object: &ObjectId, version: Version, now: Monotonic) -> Settled {
        let Some(mut entry) = self.take(object) else { return Vec::new() };
        let was_pushing = entry.pushing.take_if(|pushing| *pushing == version).is_some();
        if entry.newest.version == version {
            return vec![version];
        }
        if was_pushing {
            (entry.since, entry.due, entry.failures) = (now, now.after(self.limits.delay), 0);
        }
        self.put_back(object, entry);
        was_pushing.then_some(version).into_iter().collect()
    }

    /// `version` of `object` is not to be pushed any more, if it is still the newest.
    pub(crate) fn drop_newest(&mut self, object: &ObjectId, version: Version) -> Settled {
        let Some(entry) = self.take(object) else { return Vec::new() };
        if entry.newest.version != version {
            self.put_back(object, entry);
            return Vec::new();
        }
        let newest = (entry.newest.mode != WriteMode::Ephemeral).then_some(version);
        newest.into_iter().chain(entry.pushing.filter(|pushing| *pushing != version)).collect()
    }

    /// What the store may hold below a write that comes now, if another waits: what that replaces, and what pushes have
    /// left or may leave before the write is acknowledged.
    pub(crate) fn below(&self, object: &ObjectId) -> Option<Below> {
        let entry = self.entry(object)?;
        let mut attempts = entry.attempts.clone();
        if entry.pushing.is_some() {
            attempts.push(entry.leaves.clone());
        }
        if entry.newest.mode != WriteMode::Ephemeral {
            attempts.push(entry.newest.becomes.leaves());
        }
        Some(Below { base: entry.base.clone(), attempts })
    }

    /// Whether no push of `object` is under way.
    pub(crate) fn is_idle(&self, object: &ObjectId) -> bool {
        self.entry(object).is_none_or(|entry| entry.pushing.is_none())
    }

    /// How many objects of a bucket wait.
    pub(crate) fn count(&self, namespace: &Namespace, bucket: &BucketName) -> usize {
        self.buckets.get(&(namespace.clone(), bucket.clone())).map_or(0, BTreeMap::len)
    }

    /// Whether the store has had `version` of `object`, or does not need it any more.
    pub(crate) fn has_had(&self, object: &ObjectId, version: Version) -> bool {
        self.entry(object).is_none_or(|entry| entry.pushed.is_some_and(|pushed| pushed >= version))
    }

    /// What waits of a bucket's keys that begin with `prefix` and sort behind `after`, in the order of keys.
    pub(crate) fn keys<'a>(
        &'a self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Unpushed)> + use<'a> {
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
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Namespace, &BucketName, &ObjectKey, &Unpushed, u32)> {
        self.buckets.iter().flat_map(|((namespace, bucket), entries)| {
            entries.iter().map(move |(key, entry)| (namespace, bucket, key, &entry.newest, entry.failures))
        })
    }

    /// How much of the room is taken: from 0 to 1.
    pub(crate) fn fullness(&self) -> f64 {
        let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
        of(self.bytes as f64, self.limits.bytes as f64).max(of(self.objects as f64, self.limits.objects as f64))
    }

    /// What all of it is at `now`.
    pub(crate) fn usage(&self, now: Monotonic) -> DirtyUsage {
        DirtyUsage {
            objects: self.objects,
            bytes: self.bytes,
            ephemeral: self.ephemeral,
            lost: self.lost,
            watched: self.watched,
            failing: self.failing,
            oldest: self.ages.first().map_or(Duration::ZERO, |(since, _)| now.since(*since)),
            conflicts: 0,
            homeless: 0,
        }
    }

    fn entry(&self, object: &ObjectId) -> Option<&Entry> {
        self.buckets.get(&(object.namespace.clone(), object.bucket.clone()))?.get(&object.key)
    }

    /// Takes an entry out of every index; `put_back` counts it again.
    fn take(&mut self, object: &ObjectId) -> Option<Entry> {
        let bucket = (object.namespace.clone(), object.bucket.clone());
        let entries = self.buckets.get_mut(&bucket)?;
        let entry = entries.remove(&object.key)?;
        if entries.is_empty() {
            self.buckets.remove(&bucket);
        }
        self.objects -= 1;
        self.bytes -= entry.newest.becomes.bytes();
        let queue = if entry.may_hurry() { &mut self.fresh } else { &mut self.later };
        queue.remove(&(entry.due, object.clone()));
        self.ages.remove(&(entry.since, object.clone()));
        let (ephemeral, lost) = entry.ephemeral_and_lost();
        self.ephemeral -= usize::from(ephemeral);
        self.lost -= usize::from(lost);
        self.watched -= usize::from(entry.is_watched());
        self.failing -= usize::from(entry.failures > 0);
        Some(entry)
    }

    fn put_back(&mut self, object: &ObjectId, entry: Entry) {
        self.objects += 1;
        self.bytes += entry.newest.becomes.bytes();
        if entry.is_queued() {
            let queue = if entry.may_hurry() { &mut self.fresh } else { &mut self.later };
            queue.insert((entry.due, object.clone()));
        }
        let (ephemeral, lost) = entry.ephemeral_and_lost();
        self.ephemeral += usize::from(ephemeral);
        self.lost += usize::from(lost);
        if entry.is_watched() {
            self.watched += 1;
        } else if !ephemeral {
            self.ages.insert((entry.since, object.clone()));
        }
        self.failing += usize::from(entry.failures > 0);
        let bucket = (object.namespace.clone(), object.bucket.clone());
        self.buckets.entry(bucket).or_default().insert(object.key.clone(), entry);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nigh_terms::{Epoch, Sequence, Timestamp, Token};
    use proptest::prelude::*;

    use super::*;
    use crate::Attributes;

    const LIMITS: DirtyLimits = DirtyLimits {
        bytes: 1000,
        objects: 10,
        delay: Duration::from_secs(1),
        back_off: Duration::from_secs(2),
        back_off_max: Duration::from_secs(60),
        lands_within: Duration::from_secs(900),
    };

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    const fn version(sequence: u64) -> Version {
        Version { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    const fn second(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn meta(size: u64, etag: &str) -> Arc<ObjectMeta> {
        Arc::new(ObjectMeta {
            size,
            etag: ETag(etag.to_owned()),
            modified: Timestamp(0),
            attributes: Attributes::default(),
            tags: BTreeMap::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: Version::OUTSIDE,
            token: Token::empty(),
        })
    }

    fn put(dirty: &mut Dirty, key: &str, sequence: u64, now: Monotonic) -> Settled {
        let becomes = Becomes::Put(meta(10, &sequence.to_string()));
        dirty.write(&object(key), version(sequence), WriteMode::Lazy, becomes, Below::default(), now)
    }

    fn holds(sequence: u64) -> Base {
        Base::Holds(ETag(sequence.to_string()))
    }

    fn push(dirty: &mut Dirty, now: Monotonic) -> Push {
        match dirty.next(now, false) {
            Next::Push(push) => *push,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_newer_write_replaces_one_that_waits_and_lets_its_record_go() {
        let mut dirty = Dirty::new(LIMITS);
        assert_eq!(put(&mut dirty, "a", 1, second(0)), []);
        assert_eq!(put(&mut dirty, "a", 2, second(0)), [version(1)]);
        assert_eq!(dirty.next(second(0), false), Next::At(second(1)));
        let pushed = push(&mut dirty, second(1));
        assert_eq!((pushed.version, pushed.base), (version(2), Base::Unknown));
        assert_eq!(dirty.pushed(&object("a"), version(2), holds(2), second(1)), [version(2)]);
        assert_eq!((dirty.next(second(9), false), dirty.usage(second(9))), (Next::Idle, DirtyUsage::default()));
    }

    #[test]
    fn a_write_during_a_push_is_pushed_after_it_onto_what_it_left() {
        let mut dirty = Dirty::new(LIMITS);
        put(&mut dirty, "a", 1, second(0));
        let first = push(&mut dirty, second(1));
        assert_eq!(put(&mut dirty, "a", 2, second(1)), [], "the record of what is being pushed stays");
        assert_eq!(dirty.next(second(9), true), Next::Idle, "one push of an object at a time");
        assert_eq!(dirty.pushed(&object("a"), first.version, holds(1), second(2)), [version(1)]);
        let next = push(&mut dirty, second(3));
        assert_eq!((next.version, next.base), (version(2), holds(1)));
    }

    #[test]
    fn a_failed_push_waits_twice_as_long_each_time_and_holds_no_other_up() {
        let mut dirty = Dirty::new(LIMITS);
        put(&mut dirty, "a", 1, second(0));
        let mut now = second(1);
        for wait in [2, 4, 8, 16, 32, 60, 60] {
            push(&mut dirty, now);
            dirty.failed(&object("a"), version(1), Some(holds(1)), None, now);
            assert_eq!(dirty.next(now, true), Next::At(now.after(Duration::from_secs(wait))));
            now = now.after(Duration::from_secs(wait));
        }
        dirty.want(&object("a"));
        put(&mut dirty, "b", 2, now);
        assert_eq!(push(&mut dirty, now).attempts, [holds(1)]);
        assert_eq!(push(&mut dirty, now.after(LIMITS.delay)).object, object("b"));
        assert_eq!(dirty.usage(now).failing, 1);
    }

    #[test]
    fn an_object_waits_until_no_push_without_an_answer_can_land_over_the_last_one() {
        let mut dirty = Dirty::new(LIMITS);
        put(&mut dirty, "a", 1, second(0));
        push(&mut dirty, second(1));
        put(&mut dirty, "a", 2, second(1));
        assert_eq!(dirty.failed(&object("a"), version(1), Some(holds(1)), None, second(1)), [version(1)]);
        assert_eq!(push(&mut dirty, second(3)).version, version(2));
        assert_eq!(dirty.pushed(&object("a"), version(2), holds(2), second(3)), []);
        assert!(dirty.get(&object("a")).is_some(), "readers see it here, whatever lands");
        assert_eq!(dirty.next(second(4), false), Next::At(second(901)));
        let watched = DirtyUsage { objects: 1, bytes: 10, watched: 1, ..DirtyUsage::default() };
        assert_eq!(dirty.usage(second(4)), watched, "it waits for nothing");
        let again = push(&mut dirty, second(901));
        assert_eq!((again.base, again.attempts), (holds(2), vec![holds(1)]));
        assert_eq!(dirty.pushed(&object("a"), version(2), holds(2), second(902)), [version(2)]);
        assert_eq!(dirty.next(second(902), false), Next::Idle);
    }

    #[test]
    fn a_write_over_an_object_that_is_only_looked_after_is_pushed_when_it_is_due_itself() {
        let mut dirty = Dirty::new(LIMITS);
        put(&mut dirty, "a", 1, second(0));
        push(&mut dirty, second(1));
        dirty.failed(&object("a"), version(1), Some(holds(1)), None, second(1));
        push(&mut dirty, second(3));
        assert_eq!(dirty.pushed(&object("a"), version(1), holds(1), second(3)), []);
        assert_eq!(put(&mut dirty, "a", 2, second(5)), [version(1)]);
        assert_eq!(dirty.next(second(5), false), Next::At(second(6)));
        assert_eq!(push(&mut dirty, second(6)).version, version(2));
    }

    #[test]
    fn in_a_hurry_what_is_not_due_goes_too() {
        let mut dirty = Dirty::new(LIMITS);
        put(&mut dirty, "a", 1, second(0));
        assert!(matches!(dirty.next(second(0), true), Next::Push(_)));
        put(&mut dirty, "b", 2, second(0));
        assert_eq!(dirty.want(&object("b")), Some(version(2)));
        assert!(matches!(dirty.next(second(0), false), Next::Push(_)));
    }

    #[test]
    fn room_is_counted_in_bytes_and_objects_and_a_replaced_write_gives_its_own_back() {
        let mut dirty = Dirty::new(DirtyLimits { bytes: 25, objects: 2, ..LIMITS });
        put(&mut dirty, "a", 1, second(0));
        let has_room = |dirty: &mut Dirty, key: &str, bytes| {
            let promised = dirty.promise(&object(key), bytes);
            if promised {
                dirty.release(bytes);
            }
            promised
        };
        assert!(has_room(&mut dirty, "b", 15) && !has_room(&mut dirty, "b", 16) && has_room(&mut dirty, "a", 25));
        put(&mut dirty, "b", 2, second(0));
        assert!(!has_room(&mut dirty, "c", 0) && has_room(&mut dirty, "b", 15));
        assert_eq!(dirty.fullness(), 1.0);
    }

    #[test]
    fn room_that_is_promised_to_one_write_is_not_promised_to_another() {
        let mut dirty = Dirty::new(DirtyLimits { bytes: 25, objects: 3, ..LIMITS });
        assert!(dirty.promise(&object("a"), 15) && !dirty.promise(&object("b"), 15));
        assert!(dirty.promise(&object("b"), 5) && dirty.promise(&object("c"), 5));
        assert!(!dirty.promise(&object("d"), 0), "three objects are promised");
        dirty.release(5);
        put(&mut dirty, "c", 1, second(0));
        assert!(!dirty.promise(&object("d"), 0), "one waits, two are promised");
        dirty.release(15);
        assert!(dirty.promise(&object("d"), 10));
    }

    #[test]
    fn all_that_was_acknowledged_is_wanted_at_once_but_what_failed_or_came_later() {
        let mut dirty = Dirty::new(LIMITS);
        put(&mut dirty, "failed", 1, second(0));
        push(&mut dirty, second(1));
        dirty.failed(&object("failed"), version(1), None, None, second(1));
        for n in 0..3 {
            put(&mut dirty, &n.to_string(), n + 2, second(2));
        }
        dirty.want_all(second(2));
        put(&mut dirty, "later", 9, Monotonic(second(2).0 + 1));
        let now = Monotonic(second(2).0 + 2);
        for n in 0..3 {
            assert_eq!(push(&mut dirty, now).object, object(&n.to_string()));
        }
        assert_eq!(dirty.next(now, false), Next::At(second(3)), "the one that failed");
    }

    #[test]
    fn an_ephemeral_object_is_never_pushed_until_a_durable_write_replaces_it() {
        let mut dirty = Dirty::new(LIMITS);
        let becomes = Becomes::Put(meta(10, "e"));
        dirty.write(&object("a"), version(1), WriteMode::Ephemeral, becomes, Below::default(), second(0));
        assert_eq!((dirty.next(second(99), true), dirty.want(&object("a"))), (Next::Idle, None));
        assert_eq!(
            dirty.usage(second(99)),
            DirtyUsage { objects: 1, bytes: 10, ephemeral: 1, ..DirtyUsage::default() }
        );
        assert_eq!(put(&mut dirty, "a", 2, second(100)), []);
        assert_eq!(dirty.next(second(100), false), Next::At(second(101)));
    }

    #[test]
    fn a_lost_ephemeral_write_gives_its_room_back_and_stays_known_until_the_next_write() {
        let mut dirty = Dirty::new(LIMITS);
        let ephemeral = |dirty: &mut Dirty, sequence| {
            let becomes = Becomes::Put(meta(900, "e"));
            dirty.write(&object("a"), version(sequence), WriteMode::Ephemeral, becomes, Below::default(), second(0))
        };
        ephemeral(&mut dirty, 1);
        assert!(!dirty.promise(&object("b"), 101));
        assert!(!dirty.lost(&object("b"), version(1)));
        assert!(dirty.lost(&object("a"), version(1)));
        assert!(dirty.promise(&object("b"), 1000));
        dirty.release(1000);
        let newest = dirty.get(&object("a")).unwrap();
        assert_eq!((newest.mode, &newest.becomes), (WriteMode::Ephemeral, &Becomes::Lost));
        let lost = DirtyUsage { objects: 1, ephemeral: 1, lost: 1, ..DirtyUsage::default() };
        assert_eq!(dirty.usage(second(9)), lost);
        ephemeral(&mut dirty, 2);
        assert!(!dirty.lost(&object("a"), version(1)), "the copy of an older write says nothing of this one");
        assert_eq!(dirty.usage(second(9)).bytes, 900);
        put(&mut dirty, "b", 3, second(0));
        assert!(!dirty.lost(&object("b"), version(3)), "what is in the journal is not lost");
    }

    #[test]
    fn keys_are_given_by_prefix_behind_a_marker_in_order() {
        let mut dirty = Dirty::new(LIMITS);
        for (at, key) in ["a", "b/1", "b/2", "b/3", "c"].into_iter().enumerate() {
            put(&mut dirty, key, at as u64 + 1, second(0));
        }
        let keys = |prefix, after| -> Vec<String> {
            let (namespace, bucket) = (Namespace::new("n").unwrap(), BucketName::new("bucket").unwrap());
            dirty.keys(&namespace, &bucket, prefix, after).map(|(key, _)| key.as_str().to_owned()).collect()
        };
        assert_eq!(keys("", None), ["a", "b/1", "b/2", "b/3", "c"]);
        assert_eq!(keys("b/", None), ["b/1", "b/2", "b/3"]);
        assert_eq!(keys("b/", Some("b/1")), ["b/2", "b/3"]);
        assert_eq!(keys("b/", Some("a")), ["b/1", "b/2", "b/3"]);
        assert_eq!(keys("b/", Some("c")), [""; 0]);
        assert_eq!(keys("", Some("b/\u{10ffff}")), ["c"]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8),
        Delete(u8),
        Begin(bool),
        End(usize, bool, bool),
        Later(u64),
        Land(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..3).prop_map(Step::Put),
            1 => (0u8..3).prop_map(Step::Delete),
            4 => any::<bool>().prop_map(Step::Begin),
            4 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(|(n, ok, landed)| Step::End(n, ok, landed)),
            2 => (0u64..20).prop_map(Step::Later),
            2 => any::<usize>().prop_map(Step::Land),
        ]
    }

    proptest! {
        /// Whatever is written, pushed, fails, or lands without an answer and late: who does not find an object here
        /// finds its newest state in the store; no record goes while that stands on it; and in the end the store has
        /// the newest state of everything and every record is gone.
        #[test]
        fn what_does_not_wait_here_is_in_the_store_and_all_ends_there(steps in prop::collection::vec(step(), 0..80)) {
            let mut dirty: Dirty = Dirty::new(LIMITS);
            let mut now = second(0);
            let mut sequence = 0;
            // Of each key: what was acknowledged, what the store has (as bytes and the version of the state).
            let mut acknowledged: BTreeMap<u8, (Version, Option<u64>)> = BTreeMap::new();
            let mut stored: BTreeMap<u8, (Version, Option<u64>)> = BTreeMap::new();
            let mut records: BTreeSet<Version> = BTreeSet::new();
            let mut pushing: Vec<Push> = Vec::new();
            // Pushes without an answer, and until when they may land.
            let mut late: Vec<(Monotonic, u8, Version, Option<u64>)> = Vec::new();
            let key_of = |object: &ObjectId| object.key.as_str().parse::<u8>().unwrap();
            let body = |becomes: &Becomes| match becomes {
                Becomes::Put(meta) => meta.etag.0.parse::<u64>().ok(),
                Becomes::Gone | Becomes::Lost => None,
            };
            let mut steps = steps;
            // At the end everything is pushed and answered.
            steps.extend((0..40).flat_map(|_| [Step::Land(0), Step::Later(200), Step::Begin(true), Step::End(0, true, true)]));
            for step in steps {
                let mut settled = Vec::new();
                match step {
                    Step::Put(key) | Step::Delete(key) => {
                        sequence += 1;
                        let becomes = match step {
                            Step::Put(_) => Becomes::Put(meta(1, &sequence.to_string())),
                            _ => Becomes::Gone,
                        };
                        acknowledged.insert(key, (version(sequence), body(&becomes)));
                        records.insert(version(sequence));
                        settled = dirty.write(&object(&key.to_string()), version(sequence), WriteMode::Lazy, becomes, Below::default(), now);
                    }
                    Step::Begin(hurry) => {
                        if let Next::Push(push) = dirty.next(now, hurry) {
                            prop_assert!(pushing.iter().all(|other| other.object != push.object));
                            pushing.push(*push);
                        }
                    }
                    Step::End(at, ok, landed) if !pushing.is_empty() => {
                        let push = pushing.remove(at % pushing.len());
                        let key = key_of(&push.object);
                        let left = body(&push.becomes).map_or(Base::Absent, holds);
                        if !ok {
                            late.push((now.after(LIMITS.lands_within), key, push.version, body(&push.becomes)));
                        }
                        if ok || landed {
                            stored.insert(key, (push.version, body(&push.becomes)));
                        }
                        settled = if ok {
                            dirty.pushed(&push.object, push.version, left, now)
                        } else {
                            dirty.failed(&push.object, push.version, Some(left), None, now)
                        };
                    }
                    Step::End(..) => {}
                    Step::Later(seconds) => now = now.after(Duration::from_secs(seconds)),
                    Step::Land(at) => {
                        late.retain(|(until, ..)| now < *until);
                        if !late.is_empty() {
                            let (_, key, version, bytes) = late.remove(at % late.len());
                            stored.insert(key, (version, bytes));
                        }
                    }
                }
                for record in settled {
                    prop_assert!(records.remove(&record), "{record} went twice");
                }
                for (key, (newest, bytes)) in &acknowledged {
                    if let Some(waits) = dirty.get(&object(&key.to_string())) {
                        prop_assert_eq!((waits.version, body(&waits.becomes)), (*newest, *bytes));
                        prop_assert!(records.contains(&waits.version));
                    } else {
                        prop_assert_eq!(stored.get(key), Some(&(*newest, *bytes)));
                    }
                }
            }
            prop_assert_eq!(dirty.usage(now), DirtyUsage::default());
            prop_assert!(records.is_empty(), "{records:?}");
        }
    }
}
