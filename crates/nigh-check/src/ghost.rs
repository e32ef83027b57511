//! An observer that sees everything: it knows what each reader must see, and checks that it did.
//!
//! The observer never changes a machine. It compares versions, because the ledger orders all writes.

use nigh_terms::Version;

/// The most objects of a configuration.
pub(crate) const OBJECTS_MAX: usize = 2;

/// An object, by its number.
pub(crate) type Object = u8;
/// A write, by the index of its operation in the program. The first content of an object is `FIRST`.
pub(crate) type Op = u8;

/// The promises, as docs/design/coherence.md numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// An invocation dispatched after the end of one that wrote sees the write; what has ended writes no more.
    P1,
    /// One copy never mixes versions.
    P2,
    /// Writes of one client are ordered, and each takes place once.
    P3,
    /// Reads are monotonic along a chain of invocations.
    P4,
    /// No acknowledged put is lost.
    P5,
    /// After a read of a version, later reads show what the version's writer had seen.
    P6,
    /// All writes of a transaction take place, or none does.
    T1,
    /// A transaction that was acknowledged is seen by all; one that was refused never.
    T2,
    /// No transaction overwrites a later write, or a write between its reads and its end.
    T3,
}

/// The newest version of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Marks<const OBJECTS: usize = OBJECTS_MAX>([Version; OBJECTS]);

impl<const OBJECTS: usize> Default for Marks<OBJECTS> {
    fn default() -> Self {
        Self([Version::default(); OBJECTS])
    }
}

impl<const OBJECTS: usize> Marks<OBJECTS> {
    /// The newest version of one object.
    #[must_use]
    pub(crate) fn of(&self, object: Object) -> Version {
        self.0[usize::from(object)]
    }

    /// Adds a version of an object.
    pub(crate) fn see(&mut self, object: Object, version: Version) {
        let mark = &mut self.0[usize::from(object)];
        *mark = (*mark).max(version);
    }

    /// Adds all versions of `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        for (mark, seen) in self.0.iter_mut().zip(other.0) {
            *mark = (*mark).max(seen);
        }
    }
}

/// The oldest versions that a reader may see, by promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SeenMarks<const OBJECTS: usize = OBJECTS_MAX> {
    /// Writes of invocations that had ended (P1).
    pub(crate) ended: Marks<OBJECTS>,
    /// Versions read or written along the chain (P4).
    pub(crate) chain: Marks<OBJECTS>,
    /// Versions that the writers of those versions had seen (P6).
    pub(crate) causes: Marks<OBJECTS>,
}

impl<const OBJECTS: usize> SeenMarks<OBJECTS> {
    /// The newest of these versions, over all promises.
    #[must_use]
    pub(crate) fn all(&self) -> Marks<OBJECTS> {
        let mut all = self.ended;
        all.join(&self.chain);
        all.join(&self.causes);
        all
    }

    /// The promise that is broken by reading `version` of `object`.
    #[must_use]
    pub(crate) fn broken_by(&self, object: Object, version: Version) -> Option<Promise> {
        if version < self.ended.of(object) {
            Some(Promise::P1)
        } else if version < self.chain.of(object) {
            Some(Promise::P4)
        } else if version < self.causes.of(object) {
            Some(Promise::P6)
        } else {
            None
        }
    }
}

/// One write that took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LoggedWrite {
    /// The object that was written.
    pub(crate) object: Object,
    /// The write's version.
    pub(crate) version: Version,
    /// The operation.
    pub(crate) op: Op,
    /// True if it deleted the object.
    pub(crate) delete: bool,
}

/// The observer's records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// All writes that took place, in any order.
    pub(crate) log: Vec<LoggedWrite>,
    /// For each write, what its writer had seen before it.
    pub(crate) knew: Vec<(Op, Marks)>,
    /// What an invocation that is dispatched now must see.
    pub(crate) ended: SeenMarks,
    /// The newest write of each object that was acknowledged.
    pub(crate) acknowledged: Marks,
}

impl Ghost {
    /// The write that made `version` of `object`; none for its first content.
    #[must_use]
    pub(crate) fn shown_by(&self, object: Object, version: Version) -> Option<&LoggedWrite> {
        let older = self.log.iter().filter(|one| one.object == object && one.version <= version);
        older.max_by_key(|one| one.version)
    }

    /// What the writer of `op` had seen before it.
    #[must_use]
    pub(crate) fn knowledge(&self, op: Op) -> Marks {
        self.knew.iter().find(|(known, _)| *known == op).map(|(_, marks)| *marks).unwrap_or_default()
    }

    /// Records that `op` begins.
    pub(crate) fn begins(&mut self, op: Op, marks: Marks) {
        self.knew.push((op, marks));
        self.knew.sort_unstable_by_key(|(op, _)| *op);
    }

    /// Records that a write took place. True if it had taken place before.
    pub(crate) fn happens(&mut self, happened: LoggedWrite) -> bool {
        let again = self.log.iter().any(|one| one.op == happened.op);
        self.log.push(happened);
        again
    }
}
