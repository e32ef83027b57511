//! The sizes of recently read or written objects: a feature of inputs, found without asking a store.
//!
//! An observer of the object memory. Without a recorder of features, the size is the only known feature. An object that
//! was never seen, or that was forgotten at the limit, has no size, and gives no prediction.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use nigh_data::{ObjectEvent, ObjectObserver, ServeOutcome};
use nigh_learn::FeatureRow;
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey};
use parking_lot::Mutex;

use crate::object_features::recorder::FeatureRecorder;
use crate::object_features::{INPUT_SIZE, ObjectFeatures};

/// Objects remembered; each takes 16 bytes and a share of the table's free space.
const OBJECTS_MAX: usize = 1 << 18;

/// Sizes by the hash of the object's name. The hash is keyed with a random secret, so nobody can make two names
/// collide. A collision by chance (one in 2^46 at full size) costs a wrong prediction.
pub struct ObjectSizes {
    hasher: RandomState,
    generations: Mutex<Generations>,
}

/// A younger and an older half. A full younger half becomes the older half.
#[derive(Default)]
struct Generations {
    young: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
}

impl Default for ObjectSizes {
    fn default() -> Self {
        Self { hasher: RandomState::new(), generations: Mutex::default() }
    }
}

impl ObjectSizes {
    /// The last seen size of an object.
    #[must_use]
    pub fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<ByteSize> {
        let name = self.hasher.hash_one((namespace, bucket, key));
        let generations = self.generations.lock();
        generations.young.get(&name).or_else(|| generations.old.get(&name)).copied().map(ByteSize)
    }
}

impl ObjectFeatures for ObjectSizes {
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
        let size = self.of(namespace, bucket, key)?;
        let mut row = FeatureRow::default();
        row.set_number(INPUT_SIZE, size.bytes() as f64).ok()?;
        Some(Arc::new(row))
    }
}

/// The recorded features of an object, or its size alone if no features are recorded.
pub struct FeaturesOrSize {
    /// Records features; none if this node does not.
    pub recorder: Option<FeatureRecorder>,
    /// Sizes of the objects that were read or written.
    pub sizes: Arc<ObjectSizes>,
}

impl ObjectFeatures for FeaturesOrSize {
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
        let recorded = self.recorder.as_ref().and_then(|recorder| recorder.of(namespace, bucket, key));
        recorded.or_else(|| ObjectFeatures::of(&*self.sizes, namespace, bucket, key))
    }
}

impl ObjectObserver for ObjectSizes {
    fn observe(&self, event: &ObjectEvent) {
        let Some(key) = &event.key else { return };
        let name = self.hasher.hash_one((&event.principal.namespace, &event.bucket, key));
        let mut generations = self.generations.lock();
        match (event.served, event.object_bytes) {
            (ServeOutcome::Delete, _) => {
                generations.young.remove(&name);
                generations.old.remove(&name);
            }
            (_, Some(bytes)) => {
                if generations.young.len() >= OBJECTS_MAX / 2 && !generations.young.contains_key(&name) {
                    generations.old = std::mem::take(&mut generations.young);
                }
                generations.young.insert(name, bytes);
            }
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_data::DataOperation;
    use nigh_terms::{Monotonic, Principal, Token};

    use super::*;

    fn event(key: &str, served: ServeOutcome, object_bytes: Option<u64>) -> ObjectEvent {
        ObjectEvent {
            principal: Principal::outside(Namespace::new("tenant").unwrap()),
            bucket: BucketName::new("bucket").unwrap(),
            key: Some(ObjectKey::new(key).unwrap()),
            operation: if served == ServeOutcome::Write { DataOperation::Write } else { DataOperation::Read },
            served,
            bytes: 1,
            object_bytes,
            began: Monotonic(0),
            ended: Monotonic(1),
            version: None,
            token: Token::empty(),
        }
    }

    fn size(sizes: &ObjectSizes, namespace: &str, key: &str) -> Option<u64> {
        let (namespace, bucket) = (Namespace::new(namespace).unwrap(), BucketName::new("bucket").unwrap());
        sizes.of(&namespace, &bucket, &ObjectKey::new(key).unwrap()).map(|size| size.0)
    }

    #[test]
    fn the_last_size_seen_is_known_to_its_own_namespace_until_the_object_is_deleted() {
        let sizes = ObjectSizes::default();
        sizes.observe(&event("a", ServeOutcome::Miss, Some(10)));
        sizes.observe(&event("a", ServeOutcome::Write, Some(20)));
        sizes.observe(&event("a", ServeOutcome::Failed, None));
        assert_eq!(size(&sizes, "tenant", "a"), Some(20));
        assert_eq!(size(&sizes, "other", "a"), None);
        sizes.observe(&event("a", ServeOutcome::Delete, None));
        assert_eq!(size(&sizes, "tenant", "a"), None);
    }

    #[test]
    fn the_oldest_sizes_give_way() {
        let sizes = ObjectSizes::default();
        for at in 0..OBJECTS_MAX + 2 {
            sizes.observe(&event(&at.to_string(), ServeOutcome::Write, Some(at as u64)));
        }
        assert_eq!(size(&sizes, "tenant", "0"), None);
        let last = OBJECTS_MAX + 1;
        assert_eq!(size(&sizes, "tenant", &last.to_string()), Some(last as u64));
    }
}
