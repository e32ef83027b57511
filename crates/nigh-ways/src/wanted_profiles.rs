//! Remembers which functions need a profile, with events of different sizes that they were invoked with. Pure.
//!
//! A function needs a profile if its present code has no model, or if an input was outside the model's sizes. Each
//! version of the code is tried once for each set of sizes; after a failed profile it is not tried again.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use nigh_functions::function::Function;
use nigh_terms::{ByteSize, FunctionName, Namespace};

/// Functions that may wait at a time.
const FUNCTIONS_MAX: usize = 64;
/// The events kept of a function, each of another size.
const EVENTS_MAX: usize = 4;
/// The fewest sizes that a model can be learned from.
const EVENTS_MIN: usize = 2;
/// Larger events are not kept.
const EVENT_BYTES_MAX: usize = 64 * 1024;
/// Versions that are remembered as tried; beyond it all are forgotten.
const TRIED_MAX: usize = 4096;

/// A profile that should be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedProfile {
    /// Whose function.
    pub namespace: Namespace,
    /// Which.
    pub function: FunctionName,
    /// Its version.
    revision: String,
    /// Events of different sizes, the smallest first.
    pub events: Vec<Bytes>,
}

struct QueuedProfile {
    revision: String,
    events: Vec<(ByteSize, Bytes)>,
}

/// The functions that wait.
#[derive(Default)]
pub(super) struct WantedProfiles {
    waiting: HashMap<(Namespace, FunctionName), QueuedProfile>,
    tried: HashSet<String>,
}

/// Two sizes with the same logarithm count as one.
fn magnitude(size: ByteSize) -> u32 {
    size.0.checked_ilog2().unwrap_or(0)
}

impl WantedProfiles {
    /// An event that no model covers.
    pub(super) fn add(&mut self, function: &Function, size: ByteSize, payload: &[u8]) {
        if payload.len() > EVENT_BYTES_MAX || self.tried.contains(&function.revision_id) {
            return;
        }
        let name = (function.namespace.clone(), function.name.clone());
        if self.waiting.len() >= FUNCTIONS_MAX && !self.waiting.contains_key(&name) {
            return;
        }
        let fresh = || QueuedProfile { revision: function.revision_id.clone(), events: Vec::new() };
        let waiting = self.waiting.entry(name).or_insert_with(fresh);
        if waiting.revision != function.revision_id {
            *waiting = fresh();
        }
        let known = waiting.events.iter().any(|(other, _)| magnitude(*other) == magnitude(size));
        if !known && waiting.events.len() < EVENTS_MAX {
            waiting.events.push((size, Bytes::copy_from_slice(payload)));
        }
    }

    /// The function with most to learn from; it waits no more.
    pub(super) fn take(&mut self) -> Option<WantedProfile> {
        let enough = self.waiting.iter().filter(|(_, waiting)| waiting.events.len() >= EVENTS_MIN);
        let (name, _) = enough.max_by_key(|(_, waiting)| waiting.events.len())?;
        let name = name.clone();
        let QueuedProfile { revision, mut events } = self.waiting.remove(&name)?;
        if self.tried.len() >= TRIED_MAX {
            self.tried.clear();
        }
        self.tried.insert(revision.clone());
        events.sort_by_key(|(size, _)| *size);
        let (namespace, function) = name;
        let events = events.into_iter().map(|(_, event)| event).collect();
        Some(WantedProfile { namespace, function, revision, events })
    }

    /// The cache was not idle: it waits again.
    pub(super) fn put_back(&mut self, wanted: &WantedProfile) {
        self.tried.remove(&wanted.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_functions::test_support::function;

    #[test]
    fn a_function_is_wanted_once_it_ran_with_two_sizes_and_once_a_version() {
        let mut wanted = WantedProfiles::default();
        let f = function("f");
        wanted.add(&f, ByteSize(1000), b"small");
        wanted.add(&f, ByteSize(1001), b"the same size");
        assert_eq!(wanted.take(), None);
        wanted.add(&f, ByteSize(100), b"smaller");
        let found = wanted.take().unwrap();
        assert_eq!(found.events, [&b"smaller"[..], b"small"]);
        wanted.add(&f, ByteSize(1000), b"small");
        wanted.add(&f, ByteSize(100), b"smaller");
        assert_eq!(wanted.take(), None, "this version was tried");
        wanted.put_back(&found);
        wanted.add(&f, ByteSize(1000), b"small");
        wanted.add(&f, ByteSize(100), b"smaller");
        assert_eq!(wanted.take().unwrap().events.len(), 2);
        let changed = Function { revision_id: "revision-2".to_owned(), ..f };
        wanted.add(&changed, ByteSize(1000), b"small");
        wanted.add(&changed, ByteSize(100), b"smaller");
        assert!(wanted.take().is_some());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut wanted = WantedProfiles::default();
        for at in 0..FUNCTIONS_MAX + 10 {
            wanted.add(&function(&format!("f{at}")), ByteSize(1), b"event");
        }
        assert_eq!(wanted.waiting.len(), FUNCTIONS_MAX);
        let f = function("f0");
        for shift in 0..20 {
            wanted.add(&f, ByteSize(1 << shift), b"event");
        }
        wanted.add(&f, ByteSize(1 << 30), &vec![0; EVENT_BYTES_MAX + 1]);
        assert_eq!(wanted.take().unwrap().events.len(), EVENTS_MAX);
    }
}
