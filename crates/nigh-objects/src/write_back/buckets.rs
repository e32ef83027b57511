//! Which buckets exist, and a gate for each: writes enter a bucket together, a removal enters it alone.
//!
//! This module remembers what the store said about a bucket, so that a write need not ask; it never asks the store
//! itself. If a push finds a bucket missing, each write asks for the bucket again, and `missing` names it meanwhile. An
//! answer that a task got outside the gate counts only if no bucket was removed or found missing since the task asked.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_terms::{BucketName, Namespace};
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The most buckets that are remembered. With more, those without writers are forgotten, and asked for again.
const BUCKETS_MAX: usize = 10_000;

/// What is known of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    There,
    /// A push did not find the bucket.
    Missing,
}

#[derive(Debug, Default)]
struct Gate {
    open: Arc<RwLock<()>>,
    known: Known,
}

type Name = (Namespace, BucketName);

#[derive(Debug, Default)]
struct Gates {
    of: HashMap<Name, Gate>,
    /// How many times a bucket was removed, or found missing.
    losses: u64,
}

/// What is known of the buckets, with a gate for each.
#[derive(Debug, Default)]
pub(super) struct Buckets(Mutex<Gates>);

/// A moment. The store's answer to a later question is newer than what was known then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    losses: u64,
}

/// The right to write into a bucket. The bucket is not removed meanwhile.
pub(crate) type WritePermit = OwnedRwLockReadGuard<()>;

impl Buckets {
    fn gate(&self, namespace: &Namespace, bucket: &BucketName) -> Arc<RwLock<()>> {
        let gates = &mut self.0.lock().of;
        if gates.len() >= BUCKETS_MAX {
            gates.retain(|_, gate| gate.known == Known::Missing || Arc::strong_count(&gate.open) > 1);
        }
        Arc::clone(&gates.entry((namespace.clone(), bucket.clone())).or_default().open)
    }

    /// Enters to write; waits while the bucket is being removed.
    pub(super) async fn enter(&self, namespace: &Namespace, bucket: &BucketName) -> WritePermit {
        self.gate(namespace, bucket).read_owned().await
    }

    /// Enters alone, to remove the bucket.
    pub(super) async fn alone(&self, namespace: &Namespace, bucket: &BucketName) -> OwnedRwLockWriteGuard<()> {
        self.gate(namespace, bucket).write_owned().await
    }

    fn know(&self, namespace: &Namespace, bucket: &BucketName, known: Known) {
        if let Some(gate) = self.0.lock().of.get_mut(&(namespace.clone(), bucket.clone())) {
            gate.known = known;
        }
    }

    /// True if the bucket is known to exist.
    pub(super) fn is_there(&self, namespace: &Namespace, bucket: &BucketName) -> bool {
        self.0.lock().of.get(&(namespace.clone(), bucket.clone())).is_some_and(|gate| gate.known == Known::There)
    }

    /// The store has the bucket, and the caller has entered it.
    pub(super) fn found(&self, namespace: &Namespace, bucket: &BucketName) {
        self.know(namespace, bucket, Known::There);
    }

    /// The present moment; take it before asking the store.
    pub(super) fn moment(&self) -> Moment {
        Moment { losses: self.0.lock().losses }
    }

    /// The store has the bucket; it was asked after `since`.
    pub(super) fn heard(&self, since: Moment, namespace: &Namespace, bucket: &BucketName) {
        let gates = &mut *self.0.lock();
        let name = (namespace.clone(), bucket.clone());
        if since.losses != gates.losses || gates.of.len() >= BUCKETS_MAX && !gates.of.contains_key(&name) {
            return;
        }
        let gate = gates.of.entry(name).or_default();
        // Another task may be removing the bucket now.
        if gate.open.try_read().is_ok() {
            gate.known = Known::There;
        }
    }

    /// The bucket was removed by the caller, who has entered it alone.
    pub(super) fn removed(&self, namespace: &Namespace, bucket: &BucketName) {
        self.know(namespace, bucket, Known::Nothing);
        self.0.lock().losses += 1;
    }

    /// A push did not find the bucket. True if that is new.
    pub(super) fn miss(&self, namespace: &Namespace, bucket: &BucketName) -> bool {
        let gates = &mut *self.0.lock();
        gates.losses += 1;
        let gate = gates.of.entry((namespace.clone(), bucket.clone())).or_default();
        std::mem::replace(&mut gate.known, Known::Missing) != Known::Missing
    }

    /// The buckets that a push did not find, and that nobody has found since.
    pub(super) fn missing(&self) -> Vec<Name> {
        let gates = &self.0.lock().of;
        gates.iter().filter(|(_, gate)| gate.known == Known::Missing).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn name(bucket: usize) -> Name {
        (Namespace::new("n").unwrap(), BucketName::new(&format!("bucket-{bucket}")).unwrap())
    }

    #[tokio::test]
    async fn who_removes_a_bucket_waits_for_those_inside_and_lets_nobody_in() {
        let buckets = Buckets::default();
        let (namespace, bucket) = name(0);
        let inside = buckets.enter(&namespace, &bucket).await;
        assert!(buckets.enter(&namespace, &bucket).now_or_never().is_some(), "writers go in together");
        let mut alone = Box::pin(buckets.alone(&namespace, &bucket));
        assert!(alone.as_mut().now_or_never().is_none());
        drop(inside);
        let alone = alone.await;
        let (_, other) = name(1);
        assert!(buckets.enter(&namespace, &bucket).now_or_never().is_none());
        assert!(buckets.enter(&namespace, &other).now_or_never().is_some());
        drop(alone);
        assert!(buckets.enter(&namespace, &bucket).now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_is_heard_in_passing_counts_unless_a_bucket_was_lost_since_or_is_being_removed() {
        let buckets = Buckets::default();
        let (namespace, bucket) = name(0);
        let before = buckets.moment();
        buckets.heard(before, &namespace, &bucket);
        assert!(buckets.is_there(&namespace, &bucket));
        let alone = buckets.alone(&namespace, &bucket).await;
        buckets.removed(&namespace, &bucket);
        buckets.heard(buckets.moment(), &namespace, &bucket);
        drop(alone);
        buckets.heard(before, &namespace, &bucket);
        assert!(!buckets.is_there(&namespace, &bucket));
        let before = buckets.moment();
        buckets.miss(&namespace, &bucket);
        buckets.heard(before, &namespace, &bucket);
        assert!(!buckets.is_there(&namespace, &bucket));
        buckets.heard(buckets.moment(), &namespace, &bucket);
        assert!(buckets.is_there(&namespace, &bucket) && buckets.missing().is_empty());
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded_and_a_missing_bucket_stays() {
        let buckets = Buckets::default();
        let (namespace, missing) = name(0);
        assert!(buckets.miss(&namespace, &missing) && !buckets.miss(&namespace, &missing));
        for n in 1..BUCKETS_MAX + 2 {
            let (namespace, bucket) = name(n);
            drop(buckets.enter(&namespace, &bucket).await);
            buckets.found(&namespace, &bucket);
            assert!(buckets.is_there(&namespace, &bucket));
        }
        assert!(buckets.0.lock().of.len() <= BUCKETS_MAX);
        assert_eq!(buckets.missing(), [(namespace.clone(), missing.clone())]);
        buckets.found(&namespace, &missing);
        assert!(buckets.missing().is_empty());
    }
}
