//! Known features of objects, bounded in number and bytes. Pure: returns what the caller must store or remove
//! elsewhere.
//!
//! Read during invocations: a look-up is one hash and one comparison of names. At the limit the entry that was not used
//! for longest is removed (second chance). Features of an old version are removed as soon as a new version is known.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use nigh_data::ObjectId;
use nigh_learn::{FeatureRow, FeatureValue};
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey, Version};

/// The most objects.
pub const OBJECTS_MAX: usize = 65_536;
/// The bytes of an object's entry without its names and features.
const ENTRY_BYTES: usize = 256;

/// The features of one version of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownObject {
    /// Which.
    pub object: ObjectId,
    /// Its version.
    pub version: Version,
    /// `input_size`, and what was seen of its header.
    pub row: Arc<FeatureRow>,
}

struct Entry {
    known: KnownObject,
    bytes: usize,
    /// Whether it was used since the last pass.
    asked: bool,
}

/// The objects that are known.
pub struct KnownObjects {
    /// Keyed with a random secret, so nobody can make names collide.
    hasher: RandomState,
    entries: HashMap<u64, Entry>,
    /// The entries in the order of their insertion or last pass. It may still hold removed entries.
    order: VecDeque<u64>,
    bytes: usize,
    bytes_max: usize,
}

fn row_bytes(row: &FeatureRow) -> usize {
    row.iter()
        .map(|(name, value)| {
            let word = if let FeatureValue::Word(word) = value { word.len() } else { 0 };
            size_of_val(name) + size_of_val(value) + name.as_str().len() + word
        })
        .sum()
}

impl KnownObject {
    fn bytes(&self) -> usize {
        let ObjectId { namespace, bucket, key } = &self.object;
        let names = namespace.as_str().len() + bucket.as_str().len() + key.as_str().len();
        ENTRY_BYTES + names + row_bytes(&self.row)
    }

    /// Whether more than its size is known.
    #[must_use]
    pub fn tells_more_than_size(&self) -> bool {
        self.row.iter().any(|(name, _)| name.as_str() != super::INPUT_SIZE)
    }
}

impl KnownObjects {
    /// Empty, for at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: ByteSize) -> Self {
        Self {
            hasher: RandomState::new(),
            entries: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            bytes_max: usize::try_from(bytes_max.bytes()).unwrap_or(usize::MAX),
        }
    }

    fn place(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> u64 {
        self.hasher.hash_one((namespace, bucket, key))
    }

    fn place_of(&self, object: &ObjectId) -> u64 {
        self.place(&object.namespace, &object.bucket, &object.key)
    }

    /// The number of objects and their bytes.
    #[must_use]
    pub fn usage(&self) -> (usize, ByteSize) {
        (self.entries.len(), ByteSize(self.bytes as u64))
    }

    /// The features of an object. Counts as a use.
    pub fn ask(&mut self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
        let place = self.place(namespace, bucket, key);
        let entry = self.entries.get_mut(&place)?;
        let ObjectId { namespace: its, bucket: in_bucket, key: by_key } = &entry.known.object;
        if (its, in_bucket, by_key) != (namespace, bucket, key) {
            return None;
        }
        entry.asked = true;
        Some(Arc::clone(&entry.known.row))
    }

    /// The same, without counting as a use.
    #[must_use]
    pub fn peek(&self, object: &ObjectId) -> Option<&KnownObject> {
        let entry = self.entries.get(&self.place_of(object))?;
        (entry.known.object == *object).then_some(&entry.known)
    }

    /// Stores the features of an object in place of its present ones. Returns the objects that were removed for it.
    pub fn keep(&mut self, known: KnownObject) -> Vec<ObjectId> {
        let place = self.place_of(&known.object);
        let bytes = known.bytes();
        self.bytes += bytes;
        let mut gone = Vec::new();
        match self.entries.insert(place, Entry { known, bytes, asked: false }) {
            // An object with the same hash is removed (once in 2^48).
            Some(before) => {
                self.bytes -= before.bytes;
                if self.entries.get(&place).is_some_and(|now| now.known.object != before.known.object) {
                    gone.push(before.known.object);
                }
            }
            None => self.order.push_back(place),
        }
        while self.bytes > self.bytes_max || self.entries.len() > OBJECTS_MAX {
            let Some(place) = self.order.pop_front() else { break };
            match self.entries.get_mut(&place) {
                Some(entry) if entry.asked => {
                    entry.asked = false;
                    self.order.push_back(place);
                }
                Some(_) => gone.extend(self.remove(place)),
                None => {}
            }
        }
        self.tidy();
        gone
    }

    fn remove(&mut self, place: u64) -> Option<ObjectId> {
        let entry = self.entries.remove(&place)?;
        self.bytes -= entry.bytes;
        Some(entry.known.object)
    }

    /// Removes the features of an object unless they are of this version. True if there were any.
    pub fn forget_other(&mut self, object: &ObjectId, version: Option<Version>) -> bool {
        let place = self.place_of(object);
        let is_old = |entry: &Entry| entry.known.object == *object && Some(entry.known.version) != version;
        let forgets = self.entries.get(&place).is_some_and(is_old);
        if forgets {
            self.remove(place);
            self.tidy();
        }
        forgets
    }

    /// Removes old entries from the order, so that it stays bounded.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 64 {
            let mut seen = std::collections::HashSet::with_capacity(self.entries.len());
            self.order.retain(|place| self.entries.contains_key(place) && seen.insert(*place));
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence};

    use super::*;

    fn object(namespace: &str, key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new(namespace).unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    fn known(key: &str, sequence: u64, width: f64) -> KnownObject {
        let mut row = FeatureRow::default();
        row.set_number("in_width", width).unwrap();
        let version = Version { epoch: Epoch(1), sequence: Sequence(sequence) };
        KnownObject { object: object("tenant", key), version, row: Arc::new(row) }
    }

    fn width(objects: &mut KnownObjects, namespace: &str, key: &str) -> Option<FeatureValue> {
        let ObjectId { namespace, bucket, key } = object(namespace, key);
        objects.ask(&namespace, &bucket, &key)?.get("in_width").cloned()
    }

    #[test]
    fn an_object_is_known_to_its_own_namespace_until_it_has_another_version() {
        let mut objects = KnownObjects::new(ByteSize::mib(1));
        assert!(objects.keep(known("a", 1, 10.0)).is_empty());
        assert_eq!(width(&mut objects, "tenant", "a"), Some(FeatureValue::Number(10.0)));
        assert_eq!(width(&mut objects, "other", "a"), None);
        assert!(!objects.forget_other(&object("tenant", "a"), Some(known("a", 1, 0.0).version)));
        objects.keep(known("a", 2, 20.0));
        assert_eq!(width(&mut objects, "tenant", "a"), Some(FeatureValue::Number(20.0)));
        assert!(objects.forget_other(&object("tenant", "a"), Some(known("a", 3, 0.0).version)));
        assert!(objects.peek(&object("tenant", "a")).is_none());
        assert_eq!(objects.usage(), (0, ByteSize::ZERO));
    }

    #[test]
    fn what_was_not_asked_for_gives_way_and_what_was_stays() {
        let one = known("000", 1, 1.0).bytes() as u64;
        let mut objects = KnownObjects::new(ByteSize(10 * one));
        for at in 0..10 {
            assert!(objects.keep(known(&format!("{at:03}"), 1, 1.0)).is_empty());
        }
        assert!(width(&mut objects, "tenant", "000").is_some());
        let gone = objects.keep(known("010", 1, 1.0));
        assert_eq!(gone, [object("tenant", "001")]);
        assert!(width(&mut objects, "tenant", "000").is_some());
        assert_eq!(objects.usage(), (10, ByteSize(10 * one)));
    }

    #[test]
    fn names_that_come_and_go_leave_nothing() {
        let mut objects = KnownObjects::new(ByteSize::mib(1));
        for at in 0..10_000 {
            objects.keep(known("a", at, 1.0));
            objects.forget_other(&object("tenant", "a"), None);
        }
        assert!(objects.order.len() < 100, "{}", objects.order.len());
    }
}
