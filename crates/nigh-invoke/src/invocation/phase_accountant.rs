//! Gathers the data calls of running invocations from the object events.
//!
//! An invocation is known from `begin` to `finish`; calls of others (clients outside, ended invocations) are not counted. Memory
//! is bounded: at most `calls_max` calls of an invocation are listed, all are counted. Calls that were under way when the
//! handler ended are listed besides, so that a record says what a handler was waiting for.

use std::collections::HashMap;

use nigh_data::{DataOperation, ObjectEvent, ObjectObserver, ServeOutcome};
use nigh_schedule::activation::phases::PhaseMeter;
use nigh_schedule::activation::{DataCallRecord, Phases};
use nigh_terms::{BucketName, InvocationId, Monotonic, ObjectKey};
use parking_lot::Mutex;

/// The most calls under way of one invocation that are watched, and that a record lists beyond its other calls.
const UNDER_WAY_MAX: usize = 32;

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

    /// Lists a call that was under way at `end`, and has not ended.
    fn add_open(&mut self, call: OpenCall, start: Monotonic, end: Monotonic) {
        let served = if call.operation == DataOperation::Write { ServeOutcome::Write } else { ServeOutcome::Failed };
        self.meter.call(served, start, call.began, end);
        self.listed.push(DataCallRecord {
            served: ServeOutcome::Failed.name().to_owned(),
            bucket: call.bucket.to_string(),
            key: call.key.as_ref().map(ToString::to_string),
            bytes: 0,
            began_us: call.began.since(start).as_micros() as u64,
            took_us: end.since(call.began).as_micros() as u64,
            under_way: Some(call.operation),
        });
    }

    fn add(&mut self, event: &ObjectEvent, start: Monotonic, under_way: bool, calls_max: usize) {
        self.meter.call(event.served, start, event.began, event.ended);
        match event.served {
            ServeOutcome::Hit => self.hits += 1,
            ServeOutcome::Miss | ServeOutcome::Past => self.misses += 1,
            ServeOutcome::Metadata | ServeOutcome::Write | ServeOutcome::Delete | ServeOutcome::Failed => {}
        }
        let limit = if under_way { calls_max + UNDER_WAY_MAX } else { calls_max };
        if self.listed.len() >= limit {
            self.omitted += 1;
            return;
        }
        self.listed.push(DataCallRecord {
            served: event.served.name().to_owned(),
            bucket: event.bucket.to_string(),
            key: event.key.as_ref().map(ToString::to_string),
            bytes: event.bytes,
            began_us: event.began.since(start).as_micros() as u64,
            took_us: event.ended.since(event.began).as_micros() as u64,
            under_way: under_way.then_some(event.operation),
        });
    }
}

/// A data call that has not ended.
struct OpenCall {
    began: Monotonic,
    operation: DataOperation,
    bucket: BucketName,
    key: Option<ObjectKey>,
}

struct OpenAccount {
    start: Monotonic,
    /// When the handler ended, once it has.
    end: Option<Monotonic>,
    calls: DataCalls,
    under_way: Vec<OpenCall>,
}

impl OpenAccount {
    fn ends(&mut self, event: &ObjectEvent, calls_max: usize) {
        let is_it = |open: &OpenCall| open.began == event.began && open.bucket == event.bucket && open.key == event.key;
        if let Some(at) = self.under_way.iter().position(is_it) {
            self.under_way.swap_remove(at);
        }
        let under_way = self.end.is_some_and(|end| event.began <= end);
        self.calls.add(event, self.start, under_way, calls_max);
    }

    fn close(mut self) -> DataCalls {
        if let Some(end) = self.end {
            self.under_way.sort_by_key(|open| open.began);
            for open in self.under_way.into_iter().filter(|open| open.began <= end) {
                self.calls.add_open(open, self.start, end);
            }
        }
        self.calls
    }
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
        let account = OpenAccount { start, end: None, calls: DataCalls::default(), under_way: Vec::new() };
        self.running.lock().insert(id, account);
    }

    /// The handler of `id` has ended: what is under way now was so at its end.
    pub fn ended(&self, id: InvocationId, end: Monotonic) {
        if let Some(running) = self.running.lock().get_mut(&id) {
            running.end = Some(end);
        }
    }

    /// `id` has ended: its data calls; none if it is unknown.
    #[must_use]
    pub fn finish(&self, id: InvocationId) -> DataCalls {
        let account = self.running.lock().remove(&id);
        account.map_or_else(DataCalls::default, OpenAccount::close)
    }
}

impl ObjectObserver for PhaseAccountant {
    fn begins(&self, event: &ObjectEvent) {
        let Some(id) = event.principal.invocation else { return };
        if let Some(running) = self.running.lock().get_mut(&id)
            && running.under_way.len() < UNDER_WAY_MAX
        {
            running.under_way.push(OpenCall {
                began: event.began,
                operation: event.operation,
                bucket: event.bucket.clone(),
                key: event.key.clone(),
            });
        }
    }

    fn observe(&self, event: &ObjectEvent) {
        let Some(id) = event.principal.invocation else { return };
        if let Some(running) = self.running.lock().get_mut(&id) {
            running.ends(event, self.calls_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{FunctionName, Namespace, Principal, SandboxId, Token};

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
            operation: if served == ServeOutcome::Write { DataOperation::Write } else { DataOperation::Read },
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
    fn a_call_that_is_under_way_when_the_handler_ends_is_marked_whether_it_ends_later_or_not() {
        let (accountant, id) = (PhaseAccountant::new(1), InvocationId::now());
        accountant.begin(id, Monotonic(0));
        let done = event(Some(id), ServeOutcome::Hit, 0, 10);
        accountant.begins(&done);
        accountant.observe(&done);
        let [broken_off, never_ended] = [20, 30].map(|began| event(Some(id), ServeOutcome::Failed, began, 105));
        accountant.begins(&broken_off);
        accountant.begins(&never_ended);
        accountant.ended(id, Monotonic(100_000));
        accountant.observe(&broken_off);
        let calls = accountant.finish(id).listed;
        let short: Vec<_> = calls.iter().map(|call| (call.began_us, call.took_us, call.under_way)).collect();
        assert_eq!(short, [(0, 10, None), (20, 85, Some(DataOperation::Read)), (30, 70, Some(DataOperation::Read))]);
    }

    #[test]
    fn a_call_that_a_handler_made_when_it_had_answered_is_not_what_it_waited_for() {
        let (accountant, id) = (PhaseAccountant::new(10), InvocationId::now());
        accountant.begin(id, Monotonic(0));
        accountant.ended(id, Monotonic(100_000));
        accountant.observe(&event(Some(id), ServeOutcome::Failed, 101, 105));
        assert_eq!(accountant.finish(id).listed[0].under_way, None);
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
