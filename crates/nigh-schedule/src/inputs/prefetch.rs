//! Decides whether objects are prefetched for an application, and counts whether that was of use. Pure.
//!
//! The objects that an application's later functions will probably read (`application_objects`) are prefetched when its
//! first function starts. An object that is read within a minute was used, any other was wasted. If an application
//! wastes more than it uses, only every fiftieth start prefetches, so that it can show that it has changed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_terms::{FunctionName, Monotonic, Namespace};

/// The first function of an application.
pub type ApplicationRoot = (Namespace, FunctionName);

/// An object that is not read within this time was wasted.
const USED_WITHIN: Duration = Duration::from_secs(60);
/// The most prefetched objects that have not been read yet.
const BROUGHT_MAX: usize = 16_384;
/// The most applications with counts; with one more, all counts begin again.
const APPLICATIONS_MAX: usize = 4096;
/// Waste up to this many bytes proves nothing: one object of the size that is commonly cached.
const PROBATION_BYTES: u64 = 16 << 20;
/// Of a wasteful application's starts, one in this many prefetches.
const TRIED_EVERY: u32 = 50;
/// When use and waste reach this many bytes, both are halved, so that new starts count more.
const HALVED_AT_BYTES: u64 = 16 << 30;

/// How prefetched objects were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PrefetchUse {
    /// Number of prefetched objects.
    pub prefetched: u64,
    /// Size of the prefetched objects, in bytes.
    pub prefetched_bytes: u64,
    /// Number of prefetched objects that were read in time.
    pub used: u64,
    /// Size of the objects that were read in time, in bytes.
    pub used_bytes: u64,
    /// Number of prefetched objects that were not read in time.
    pub wasted: u64,
    /// Size of the objects that were not read in time, in bytes.
    pub wasted_bytes: u64,
}

/// The used and wasted bytes of an application.
#[derive(Clone, Copy, Debug, Default)]
struct Benefit {
    used_bytes: u64,
    wasted_bytes: u64,
    /// Number of starts without prefetch since the last one with it.
    passed: u32,
}

/// A prefetched object.
#[derive(Clone, Debug)]
struct PrefetchedObject {
    first: ApplicationRoot,
    bytes: u64,
    until: Monotonic,
}

/// The prefetched objects, and their use.
#[derive(Clone, Debug, Default)]
pub struct Prefetches {
    brought: HashMap<NamePrint, PrefetchedObject>,
    /// The objects, in the order in which their time ends.
    order: VecDeque<NamePrint>,
    benefits: HashMap<ApplicationRoot, Benefit>,
    all: PrefetchUse,
}

impl Prefetches {
    /// An application starts. Returns whether it may prefetch.
    pub fn may(&mut self, first: &ApplicationRoot, now: Monotonic) -> bool {
        self.settle(now);
        let Some(benefit) = self.benefits.get_mut(first) else { return true };
        if benefit.wasted_bytes <= benefit.used_bytes + PROBATION_BYTES {
            return true;
        }
        benefit.passed += 1;
        if benefit.passed < TRIED_EVERY {
            return false;
        }
        benefit.passed = 0;
        true
    }

    /// An object was prefetched for the application.
    pub fn brought(&mut self, first: &ApplicationRoot, object: NamePrint, bytes: u64, now: Monotonic) {
        self.settle(now);
        if self.order.len() >= BROUGHT_MAX || self.brought.contains_key(&object) {
            return;
        }
        self.all.prefetched += 1;
        self.all.prefetched_bytes += bytes;
        self.brought.insert(object, PrefetchedObject { first: first.clone(), bytes, until: now.after(USED_WITHIN) });
        self.order.push_back(object);
    }

    /// An object was read.
    pub fn read(&mut self, object: NamePrint) {
        let Some(brought) = self.brought.remove(&object) else { return };
        self.all.used += 1;
        self.all.used_bytes += brought.bytes;
        let benefit = self.benefit(brought.first);
        benefit.used_bytes += brought.bytes;
        benefit.halve();
    }

    /// Counts the objects that were not read in time as wasted.
    pub fn settle(&mut self, now: Monotonic) {
        while let Some(object) = self.order.front() {
            if self.brought.get(object).is_some_and(|brought| brought.until > now) {
                return;
            }
            let Some(object) = self.order.pop_front() else { return };
            let Some(brought) = self.brought.remove(&object) else { continue };
            self.all.wasted += 1;
            self.all.wasted_bytes += brought.bytes;
            let benefit = self.benefit(brought.first);
            benefit.wasted_bytes += brought.bytes;
            benefit.halve();
        }
    }

    /// The use of all prefetched objects.
    #[must_use]
    pub const fn all(&self) -> PrefetchUse {
        self.all
    }

    fn benefit(&mut self, first: ApplicationRoot) -> &mut Benefit {
        if self.benefits.len() >= APPLICATIONS_MAX && !self.benefits.contains_key(&first) {
            self.benefits.clear();
        }
        self.benefits.entry(first).or_default()
    }
}

impl Benefit {
    const fn halve(&mut self) {
        if self.used_bytes + self.wasted_bytes >= HALVED_AT_BYTES {
            self.used_bytes /= 2;
            self.wasted_bytes /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> ApplicationRoot {
        (Namespace::new("tenant").unwrap(), FunctionName::new("cut").unwrap())
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn what_is_read_in_time_was_of_use_and_what_is_not_was_waste() {
        let mut prefetches = Prefetches::default();
        prefetches.brought(&first(), NamePrint(1), 10, at(0));
        prefetches.brought(&first(), NamePrint(2), 20, at(1));
        prefetches.brought(&first(), NamePrint(2), 20, at(2));
        prefetches.read(NamePrint(1));
        prefetches.read(NamePrint(3));
        prefetches.settle(at(60));
        assert_eq!(prefetches.all().wasted, 0);
        prefetches.settle(at(61));
        let all = prefetches.all();
        assert_eq!((all.prefetched, all.used_bytes, all.wasted_bytes), (2, 10, 20));
        assert!(prefetches.order.is_empty() && prefetches.brought.is_empty());
    }

    #[test]
    fn an_application_whose_waste_is_more_than_its_use_is_left_alone_and_tried_again() {
        let mut prefetches = Prefetches::default();
        assert!(prefetches.may(&first(), at(0)));
        prefetches.brought(&first(), NamePrint(1), PROBATION_BYTES, at(0));
        assert!(prefetches.may(&first(), at(100)), "one in vain is no proof");
        prefetches.brought(&first(), NamePrint(2), 1, at(100));
        let tried = (0..TRIED_EVERY * 3).filter(|_| prefetches.may(&first(), at(200))).count();
        assert_eq!(tried, 3);
        prefetches.brought(&first(), NamePrint(3), 1000, at(200));
        prefetches.read(NamePrint(3));
        assert!(prefetches.may(&first(), at(200)), "it was of use");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut prefetches = Prefetches::default();
        for at_object in 0..3 * BROUGHT_MAX as u64 {
            prefetches.brought(&first(), NamePrint(at_object), 1, at(0));
        }
        assert_eq!((prefetches.order.len(), prefetches.brought.len()), (BROUGHT_MAX, BROUGHT_MAX));
    }
}
