//! Gathers the data calls of running invocations from the object events.
//!
//! An invocation is known from `begin` to `finish`; calls of others (clients outside, ended invocations) are not counted. Memory
//! is bounded: at most `calls_max` calls of an invocation are listed, all are counted.

use std::collections::HashMap;

use nigh_data::{ObjectEvent, ObjectObserver, ServeOutcome};
use nigh_schedule::activation::phases::PhaseMeter;
use nigh_schedule::activation::{DataCallRecord, Phases};
use nigh_terms::{InvocationId, Monotonic};
use parking_lot::Mutex;

/// The data calls of one invocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataCalls {
    /// Each call, in order of their ends, up to the limit.
    pub listed: Vec<DataCallRecord>,
    /// Calls beyond the limit.
    pub omitted: u64,
    /// Calls served from memory.
    pub hits: u64,
    /// Calls served by the store.
    pub misses: u64,
    meter: PhaseMeter,
}

impl DataCalls {
    /// The phases, of an invocation that took `duration_us`.
    #[must_use]
    pub fn phases(&self, duration_us: u64) -> Phases {
        self.meter.phases(duration_us)
    }

    fn add(&mut self, event: &ObjectEvent, start: Monotonic, calls_max: usize) {
        self.meter.call(event.served, start, event.began, event.ended);
        match event.served {
            ServeOutcome::Hit => self.hits += 1,
            ServeOutcome::Miss | ServeOutcome::Past => self.misses += 1,
            ServeOutcome::Metadata | ServeOutcome::Write | ServeOutcome::Delete | ServeOutcome::Failed => {}
        }
        if self.listed.len() >= calls_max {
            self.omitted += 1;
            return;
        }
        self.listed.push(DataCallRecord {
            served: served_name(event.served).to_owned(),
            bucket: event.bucket.to_string(),
            key: event.key.as_ref().map(ToString::to_string),
            bytes: event.bytes,
            began_us: event.began.since(start).as_micros() as u64,
            took_us: event.ended.since(event.began).as_micros() as u64,
        });
    }
}

const fn served_name(served: ServeOutcome) -> &'static str {
    match served {
        ServeOutcome::Hit => "hit",
        ServeOutcome::Miss => "miss",
        ServeOutcome::Past => "past",
        ServeOutcome::Metadata => "metadata",
        ServeOutcome::Write => "write",
        ServeOutcome::Delete => "delete",
        ServeOutcome::Failed => "failed",
    }
}

struct OpenAccount {
    start: Monotonic,
    calls: DataCalls,
}

/// An observer of object events that sorts them by invocation.
pub struct PhaseAccountant {
    running: Mutex<HashMap<InvocationId, OpenAccount>>,
    calls_max: usize,
}

impl PhaseAccountant {
    /// Lists up to `calls_max` calls of an invocation.
    #[must_use]
    pub fn new(calls_max: usize) -> Self {
        Self { running: Mutex::default(), calls_max }
    }

    /// `id` begins at `start`.
    pub fn begin(&self, id: InvocationId, start: Monotonic) {
        self.running.lock().insert(id, OpenAccount { start, calls: DataCalls::default() });
    }

    /// `id` has ended: its data calls; none if it is unknown.
    #[must_use]
    pub fn finish(&self, id: InvocationId) -> DataCalls {
        self.running.lock().remove(&id).map_or_else(DataCalls::default, |running| running.calls)
    }
}

impl ObjectObserver for PhaseAccountant {
    fn observe(&self, event: &ObjectEvent) {
        let Some(id) = event.principal.invocation else { return };
        if let Some(running) = self.running.lock().get_mut(&id) {
            running.calls.add(event, running.start, self.calls_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, FunctionName, Namespace, ObjectKey, Principal, SandboxId, Token};

    use super::*;

    fn event(id: Option<InvocationId>, served: ServeOutcome, began_us: u64, ended_us: u64) -> ObjectEvent {
        let namespace = Namespace::new("tenant").unwrap();
        let principal = match id {
            Some(id) => Principal::inside(namespace, FunctionName::new("f").unwrap(), SandboxId::random(), id),
            None => Principal::outside(namespace),
        };
        ObjectEvent {
            principal,
            bucket: BucketName::new("bucket").unwrap(),
            key: Some(ObjectKey::new("key").unwrap()),
            served,
            bytes: 7,
            object_bytes: None,
            began: Monotonic(began_us * 1000),
            ended: Monotonic(ended_us * 1000),
            version: None,
            token: Token::empty(),
        }
    }

    #[test]
    fn calls_are_counted_for_the_invocation_that_made_them_and_for_no_other() {
        let accountant = PhaseAccountant::new(10);
        let (one, other) = (InvocationId::now(), InvocationId::now());
        accountant.begin(one, Monotonic(1_000_000));
        accountant.begin(other, Monotonic(1_000_000));
        accountant.observe(&event(Some(one), ServeOutcome::Hit, 1010, 1020));
        accountant.observe(&event(Some(one), ServeOutcome::Miss, 1030, 1060));
        accountant.observe(&event(Some(one), ServeOutcome::Write, 1070, 1075));
        accountant.observe(&event(None, ServeOutcome::Hit, 1000, 2000));
        accountant.observe(&event(Some(InvocationId::now()), ServeOutcome::Hit, 1000, 2000));

        let calls = accountant.finish(one);
        assert_eq!((calls.hits, calls.misses, calls.omitted), (1, 1, 0));
        assert_eq!(calls.phases(100), Phases { extract_us: 40, transform_us: 55, load_us: 5 });
        let miss = &calls.listed[1];
        assert_eq!((miss.served.as_str(), miss.bytes, miss.began_us, miss.took_us), ("miss", 7, 30, 30));
        assert_eq!(accountant.finish(other), DataCalls::default());

        accountant.observe(&event(Some(one), ServeOutcome::Hit, 1080, 1090));
        assert_eq!(accountant.finish(one), DataCalls::default());
    }

    #[test]
    fn calls_beyond_the_limit_are_counted_and_not_listed() {
        let (accountant, id) = (PhaseAccountant::new(2), InvocationId::now());
        accountant.begin(id, Monotonic(0));
        for n in 0..5 {
            accountant.observe(&event(Some(id), ServeOutcome::Hit, n * 10, n * 10 + 5));
        }
        let calls = accountant.finish(id);
        assert_eq!((calls.listed.len(), calls.omitted, calls.hits), (2, 3, 5));
        assert_eq!(calls.phases(100).extract_us, 25);
    }
}
