//! Patterns of the keys that runs read: a fixed key, or one made from a name in the input. Pure.

use nigh_data::ObjectId;
use nigh_learn::FeatureValue;
use nigh_terms::{BucketName, Namespace, ObjectKey};
use serde::{Deserialize, Serialize};

use crate::activation::touched::TouchedObject;
use crate::inputs::payload_walk::PayloadWalk;

/// The most patterns that are counted for a function.
pub(super) const PATTERNS_MAX: usize = 48;
/// The most names of an input that are looked for in keys.
const NAMES_MAX: usize = 16;
/// Shorter names occur in keys by chance.
const NAME_BYTES_MIN: usize = 3;
/// After this many runs all counts are halved, so that new runs count more.
pub(super) const HALVED_AT: u32 = 64;
/// A key is expected once this many runs have read it.
pub(super) const HITS_MIN: u32 = 2;
/// The most expected objects of one invocation.
pub(super) const EXPECTED_MAX: usize = 32;

/// An object that will probably be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedObject {
    /// The object's bucket.
    pub bucket: BucketName,
    /// The object's key.
    pub key: ObjectKey,
    /// The size of the last object that matched its pattern.
    pub bytes: u64,
}

impl ExpectedObject {
    /// The object's name in `namespace`.
    #[must_use]
    pub fn object(&self, namespace: &Namespace) -> ObjectId {
        ObjectId { namespace: namespace.clone(), bucket: self.bucket.clone(), key: self.key.clone() }
    }
}

/// The form of an object's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// Always this key.
    Same(ObjectKey),
    /// The name at this place of the input, with this text before and after it.
    Made { place: String, before: String, behind: String },
}

/// A pattern of keys, and the number of runs that read a matching key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pattern {
    bucket: BucketName,
    kind: Kind,
    hits: u32,
    bytes: u64,
}

impl Pattern {
    fn key(&self, names: &Names) -> Option<ObjectKey> {
        match &self.kind {
            Kind::Same(key) => Some(key.clone()),
            Kind::Made { place, before, behind } => {
                let (_, name) = names.0.iter().find(|(at, _)| at == place)?;
                ObjectKey::new(&format!("{before}{name}{behind}")).ok()
            }
        }
    }
}

/// The names in an input, by their places: words, keys of objects, and of each the part between the last `/` and the
/// last `.`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// The names of an input.
    #[must_use]
    pub fn of(walk: &PayloadWalk) -> Self {
        let keys = walk.objects.iter().map(|object| (object.path.to_string(), object.key.as_str()));
        let long = walk.long_words.iter().map(|(name, word)| (name.to_string(), &**word));
        let is_long = |name: &str| walk.long_words.iter().any(|(long, _)| **long == *name);
        let words = walk.arguments.iter().filter_map(|(name, value)| match value {
            FeatureValue::Word(word) if !is_long(name.as_str()) => Some((name.to_string(), word.as_str())),
            _ => None,
        });
        let mut names = Vec::new();
        for (place, text) in keys.chain(long).chain(words) {
            let file = text.rsplit_once('/').map_or(text, |(_, file)| file);
            let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
            if stem != text {
                names.push((format!("{place}#stem"), stem.to_owned()));
            }
            names.push((place, text.to_owned()));
        }
        names.retain(|(_, name)| name.len() >= NAME_BYTES_MIN);
        names.truncate(NAMES_MAX);
        Self(names)
    }

    /// The pattern of the longest name that `key` contains; None if it contains none.
    fn in_key(&self, key: &str) -> Option<Kind> {
        let found = self.0.iter().filter(|(_, name)| key.contains(name.as_str()));
        let (place, name) = found.max_by_key(|(_, name)| name.len())?;
        let (before, behind) = key.split_once(name.as_str())?;
        Some(Kind::Made { place: place.clone(), before: before.to_owned(), behind: behind.to_owned() })
    }
}

/// The reads of a function's runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reads {
    pub(super) runs: u32,
    pub(super) patterns: Vec<Pattern>,
}

impl Reads {
    /// Begins a run.
    pub(super) fn begin(&mut self) {
        self.runs += 1;
        if self.runs >= HALVED_AT {
            self.runs /= 2;
            self.patterns.iter_mut().for_each(|pattern| pattern.hits /= 2);
            self.patterns.retain(|pattern| pattern.hits > 0);
        }
    }

    /// Records that the present run has read this object for the first time.
    pub(super) fn saw(&mut self, names: &Names, read: &TouchedObject) {
        let mut known = false;
        let is_it = |pattern: &Pattern| pattern.bucket == read.bucket && pattern.key(names).as_ref() == Some(&read.key);
        for pattern in self.patterns.iter_mut().filter(|pattern| is_it(pattern)) {
            (pattern.hits, pattern.bytes) = (pattern.hits.saturating_add(1), read.bytes);
            known = true;
        }
        if known {
            return;
        }
        let made = names.in_key(read.key.as_str());
        for kind in [Some(Kind::Same(read.key.clone())), made].into_iter().flatten() {
            if self.patterns.len() >= PATTERNS_MAX {
                // Of the patterns with the fewest hits the first is the oldest.
                let least = self.patterns.iter().map(|pattern| pattern.hits).min();
                if let Some(at) = self.patterns.iter().position(|pattern| Some(pattern.hits) == least) {
                    self.patterns.remove(at);
                }
            }
            self.patterns.push(Pattern { bucket: read.bucket.clone(), kind, hits: 1, bytes: read.bytes });
        }
    }

    /// The objects that a run with these names will probably read: those that at least half of the runs have read.
    pub(super) fn expected(&self, names: &Names) -> Vec<ExpectedObject> {
        let mut expected: Vec<ExpectedObject> = Vec::new();
        for pattern in self.patterns.iter().filter(|one| one.hits >= HITS_MIN && one.hits * 2 >= self.runs) {
            let Some(key) = pattern.key(names) else { continue };
            let is_it = |known: &ExpectedObject| known.bucket == pattern.bucket && known.key == key;
            if expected.len() < EXPECTED_MAX && !expected.iter().any(is_it) {
                expected.push(ExpectedObject { bucket: pattern.bucket.clone(), key, bytes: pattern.bytes });
            }
        }
        expected
    }
}
