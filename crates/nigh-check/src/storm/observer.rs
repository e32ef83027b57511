//! The checker of a storm's history: it receives all reads and writes and reports broken promises. It sees no machine.
//!
//! The observer compares versions, because the ledger orders all writes of an object. For an object that is written
//! from outside, the observer knows the order of the outside writes, and by which version Nigh has learned of each.

use std::collections::BTreeMap;
use std::ops::Bound;

use nigh_terms::Version;

use crate::ghost::{Marks, Object, Promise, SeenMarks};

/// The most objects of a storm.
pub(super) const OBJECTS_MAX: usize = 20;

/// A write, with a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Op(pub(super) u32);

/// A reader and writer: an attempt of an invocation, or a request of a client at a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Author(pub(super) u32);

/// What a storm can reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breach {
    /// A promise of the contract.
    Promise(Promise),
    /// A listing shows a state that the object never had.
    Listing,
    /// Work that was not finished after the faults had ended.
    Stuck,
    /// The store differs from the newest writes when everything is pushed.
    Store,
    /// Unneeded records or entries are never removed.
    Kept,
}

/// What was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind.
    pub breach: Breach,
    /// The shown and the expected state.
    pub what: String,
}

type ObjectMarks = Marks<OBJECTS_MAX>;
type Knowledge = SeenMarks<OBJECTS_MAX>;

struct StartedOperation {
    object: Object,
    /// The writer; none for a write from outside.
    author: Option<Author>,
    knew: ObjectMarks,
}

#[derive(Clone, Copy)]
struct ObservedWrite {
    op: Op,
    delete: bool,
}

#[derive(Default)]
struct AuthorRecord {
    namespace: usize,
    /// True for a client at a door, which carries no token.
    from_outside: bool,
    seen: Knowledge,
    ended: bool,
    writes: Vec<(Object, Version)>,
}

/// The observer of a storm.
#[derive(Default)]
pub(super) struct Observer {
    begun: Vec<StartedOperation>,
    log: Vec<BTreeMap<Version, ObservedWrite>>,
    happened: BTreeMap<Op, Version>,
    /// The index of an outside write among those of its object.
    outside: BTreeMap<Op, usize>,
    outsiders: BTreeMap<Object, usize>,
    authors: Vec<AuthorRecord>,
    /// What an invocation that is dispatched now must see, by namespace.
    ended: Vec<Knowledge>,
    pub(super) reads: u64,
    pub(super) broken: Option<Violation>,
}

impl Observer {
    pub(super) fn new(namespaces: usize) -> Self {
        Self {
            log: (0..OBJECTS_MAX).map(|_| BTreeMap::new()).collect(),
            ended: vec![Knowledge::default(); namespaces],
            ..Self::default()
        }
    }

    pub(super) fn breaks(&mut self, breach: Breach, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Violation { breach, what: what() });
        }
    }

    /// Adds an author: an attempt is dispatched, or a client sends a request to a door. Clients outside carry no token.
    pub(super) fn author(&mut self, namespace: u8, from_outside: bool) -> Author {
        let namespace = usize::from(namespace);
        let mut seen = self.ended[namespace];
        if from_outside {
            seen = Knowledge { ended: seen.ended, ..Knowledge::default() };
        }
        self.authors.push(AuthorRecord { namespace, from_outside, seen, ..AuthorRecord::default() });
        Author(self.authors.len() as u32 - 1)
    }

    fn known(&mut self, author: Author) -> &mut AuthorRecord {
        &mut self.authors[author.0 as usize]
    }

    /// A write begins. What a client outside has read does not count as seen by its write: a reader of the write need
    /// not see it (P6).
    pub(super) fn begins(&mut self, author: Author, object: Object) -> Op {
        let AuthorRecord { from_outside, seen, .. } = self.known(author);
        let knew = if *from_outside { ObjectMarks::default() } else { seen.all() };
        self.begun.push(StartedOperation { object, author: Some(author), knew });
        Op(self.begun.len() as u32 - 1)
    }

    /// Somebody outside has written in the store.
    pub(super) fn outsider_wrote(&mut self, object: Object) -> Op {
        self.begun.push(StartedOperation { object, author: None, knew: ObjectMarks::default() });
        let op = Op(self.begun.len() as u32 - 1);
        let place = self.outsiders.entry(object).or_default();
        self.outside.insert(op, *place);
        *place += 1;
        op
    }

    /// The ledger has a write durably, so the write has taken place.
    pub(super) fn happens(&mut self, object: Object, version: Version, op: Op, delete: bool) {
        self.log[usize::from(object)].insert(version, ObservedWrite { op, delete });
        if self.outside.contains_key(&op) {
            return;
        }
        if let Some(before) = self.happened.insert(op, version) {
            self.breaks(Breach::Promise(Promise::P3), || format!("{op:?} took place as {before} and as {version}"));
        }
        let Some(author) = self.begun[op.0 as usize].author else { return };
        self.known(author).writes.push((object, version));
        if self.known(author).ended {
            let what = || format!("{op:?} of {author:?} took place as {version} after {author:?} was told as ended");
            self.breaks(Breach::Promise(Promise::P1), what);
        }
    }

    /// A write is acknowledged to its author.
    pub(super) fn acknowledged(&mut self, author: Author, op: Op, version: Version) {
        let object = self.begun[op.0 as usize].object;
        if !self.outside.contains_key(&op) && self.happened.get(&op) != Some(&version) {
            let happened = self.happened.get(&op).copied();
            self.breaks(Breach::Promise(Promise::P5), || format!("{op:?} acknowledged as {version}, is {happened:?}"));
        }
        let seen = &mut self.known(author).seen;
        let before = seen.all().of(object);
        seen.chain.see(object, version);
        if version <= before {
            let what = || format!("{author:?} wrote object {object} as {version} after it had seen {before}");
            self.breaks(Breach::Promise(Promise::P3), what);
        }
    }

    /// A put from outside is acknowledged to its client.
    pub(super) fn acknowledged_outside(&mut self, author: Author, object: Object, version: Version) {
        let namespace = self.known(author).namespace;
        self.ended[namespace].ended.see(object, version);
    }

    fn shown_by(&self, object: Object, version: Version) -> Option<(Version, ObservedWrite)> {
        self.log[usize::from(object)].range(..=version).next_back().map(|(version, happened)| (*version, *happened))
    }

    /// `author` is shown `version` of an object, with the bytes of `op`; none if there is no object.
    pub(super) fn reads(&mut self, author: Author, object: Object, version: Version, op: Option<Op>) {
        self.reads += 1;
        let shown = self.shown_by(object, version);
        let theirs = op.and_then(|op| self.outside.get(&op).copied());
        let fits = match (shown, theirs) {
            (Some((_, happened)), Some(place)) => self.outside.get(&happened.op).is_some_and(|least| place >= *least),
            (None, Some(_)) => true,
            (Some((_, happened)), None) => op == (!happened.delete).then_some(happened.op),
            (None, None) => op.is_none(),
        };
        if !fits || op.is_some_and(|op| self.begun[op.0 as usize].object != object) {
            let of = shown.map(|(version, happened)| (version, happened.op, happened.delete));
            let what = || format!("{author:?} was shown {op:?} as {version} of object {object}, which is of {of:?}");
            self.breaks(Breach::Promise(Promise::P2), what);
        }
        let at = shown.map_or(Version::OUTSIDE, |(version, _)| version);
        let broken = self.known(author).seen.broken_by(object, at);
        let causes = shown.map(|(_, happened)| self.begun[happened.op.0 as usize].knew);
        let seen = &mut self.known(author).seen;
        let must = seen.all().of(object);
        seen.chain.see(object, at);
        if let Some(causes) = causes {
            seen.causes.join(&causes);
        }
        if let Some(broken) = broken {
            let what = || format!("{author:?} was shown {at} of object {object} and must see {must}");
            self.breaks(Breach::Promise(broken), what);
        }
    }

    /// `author` is shown a listing: whether each object exists. A listing is not one moment, so its entries are
    /// independent.
    pub(super) fn listed(&mut self, author: Author, shown: &[(Object, bool)]) {
        let must = self.known(author).seen.all();
        for &(object, present) in shown {
            self.listed_one(author, object, present, must.of(object));
        }
    }

    fn listed_one(&mut self, author: Author, object: Object, present: bool, must: Version) {
        if self.outsiders.contains_key(&object) {
            if !present {
                self.breaks(Breach::Listing, || {
                    format!("{author:?} was not listed object {object}, which outsiders wrote")
                });
            }
            return;
        }
        let first = self.shown_by(object, must);
        let later = self.log[usize::from(object)].range((Bound::Excluded(must), Bound::Unbounded));
        let mut states = std::iter::once(first).chain(later.map(|(version, happened)| Some((*version, *happened))));
        let is_it =
            |state: &Option<(Version, ObservedWrite)>| state.is_some_and(|(_, happened)| !happened.delete) == present;
        match states.find(is_it) {
            Some(Some((version, happened))) => {
                let causes = self.begun[happened.op.0 as usize].knew;
                let seen = &mut self.known(author).seen;
                seen.chain.see(object, version);
                seen.causes.join(&causes);
            }
            Some(None) => {}
            None => {
                let what =
                    || format!("{author:?} was listed object {object} (present: {present}), not so since {must}");
                self.breaks(Breach::Listing, what);
            }
        }
    }

    /// `author` calls another invocation: later dispatches must see what `author` has seen.
    pub(super) fn calls(&mut self, author: Author) {
        let AuthorRecord { namespace, seen, .. } = *self.known(author);
        self.ended[namespace].chain.join(&seen.chain);
        self.ended[namespace].causes.join(&seen.causes);
    }

    /// `author` gets the answer of `callee`, which has ended.
    pub(super) fn answered(&mut self, author: Author, callee: Author) {
        let seen = self.known(callee).seen;
        let own = &mut self.known(author).seen;
        own.chain.join(&seen.chain);
        own.causes.join(&seen.causes);
    }

    /// `author` has ended. With `declared` it was lost, and nobody has learned what it has read.
    pub(super) fn ends(&mut self, author: Author, declared: bool) {
        let known = self.known(author);
        if std::mem::replace(&mut known.ended, true) {
            return;
        }
        let AuthorRecord { namespace, seen, .. } = *known;
        let writes = std::mem::take(&mut known.writes);
        for &(object, version) in &writes {
            self.ended[namespace].ended.see(object, version);
        }
        self.known(author).writes = writes;
        if !declared {
            self.ended[namespace].chain.join(&seen.chain);
            self.ended[namespace].causes.join(&seen.causes);
        }
    }

    /// The state of an object that the store must have in the end; none if the object must not exist.
    pub(super) fn newest(&self, object: Object) -> Option<Op> {
        let (_, happened) = self.log[usize::from(object)].last_key_value()?;
        (!happened.delete).then_some(happened.op)
    }
}

#[cfg(test)]
mod tests;
