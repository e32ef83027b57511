//! The indexes over unpushed writes: by due time, by age, and their sums.

use std::time::Duration;

use nigh_data::ObjectId;
use nigh_terms::{Monotonic, invariant};

use super::WriteBackQueue;
use super::entry::Entry;

/// The unpushed writes, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyUsage {
    /// Objects and deletions that the store does not have.
    pub objects: usize,
    /// The bytes of these objects.
    pub bytes: u64,
    /// The bytes that must still be pushed.
    pub waiting_bytes: u64,
    /// Number of ephemeral objects.
    pub ephemeral: usize,
    /// Number of lost ephemeral objects: their memory was needed, and readers get an error.
    pub lost: usize,
    /// Number of objects and deletions that the store has and that are watched until no earlier push can be carried out
    /// over them.
    pub watched: usize,
    /// Number of objects and deletions whose push has failed and that wait for the next try.
    pub failing: usize,
    /// How long the oldest unpushed write has waited.
    pub oldest: Duration,
    /// Number of writes stored under their conflict keys since the start.
    pub conflicts: u64,
    /// Number of objects and deletions whose bucket the store no longer has.
    pub homeless: usize,
}

impl DirtyUsage {
    /// Number of objects and deletions that must still be pushed.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.objects - self.ephemeral - self.watched
    }
}

impl WriteBackQueue {
    /// The part of the room that is used: from 0 to 1.
    pub fn fullness(&self) -> f64 {
        let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
        of(self.bytes as f64, self.limits.bytes as f64).max(of(self.objects as f64, self.limits.objects as f64))
    }

    /// The counts at `now`.
    pub fn usage(&self, now: Monotonic) -> DirtyUsage {
        DirtyUsage {
            objects: self.objects,
            bytes: self.bytes,
            waiting_bytes: self.waiting_bytes,
            ephemeral: self.ephemeral,
            lost: self.lost,
            watched: self.watched,
            failing: self.failing,
            oldest: self.ages.first().map_or(Duration::ZERO, |(since, _)| now.since(*since)),
            conflicts: 0,
            homeless: 0,
        }
    }

    /// Takes an entry out of every index; `put_back` counts it again.
    pub(super) fn take(&mut self, object: &ObjectId) -> Option<Entry> {
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
        let (ephemeral, lost) = entry.ephemeral_and_lost();
        self.ephemeral -= usize::from(ephemeral);
        self.lost -= usize::from(lost);
        if entry.is_watched() {
            self.watched -= 1;
        } else if !ephemeral {
            self.ages.remove(&(entry.since, object.clone()));
            self.waiting_bytes -= entry.newest.becomes.bytes();
        }
        self.failing -= usize::from(entry.failures > 0);
        Some(entry)
    }

    /// Puts an entry into every index.
    pub(super) fn put_back(&mut self, object: &ObjectId, entry: Entry) {
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
            self.waiting_bytes += entry.newest.becomes.bytes();
        }
        self.failing += usize::from(entry.failures > 0);
        let (queued, aged, objects) = (self.fresh.len() + self.later.len(), self.ages.len(), self.objects);
        // An index entry without its object would be pushed for ever; an object without an index entry would never be
        // pushed.
        invariant!(
            queued <= objects && aged <= objects && self.lost <= self.ephemeral,
            "{queued} places in the queues and {aged} ages for {objects} objects, {} of {} ephemeral ones lost",
            self.lost,
            self.ephemeral
        );
        let bucket = (object.namespace.clone(), object.bucket.clone());
        self.buckets.entry(bucket).or_default().insert(object.key.clone(), entry);
    }
}
