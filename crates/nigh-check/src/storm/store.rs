//! The model of the store, by its contract: it has one state of each object, executes a call completely or not at all,
//! and may do so late or without an answer. It neither orders nor fences.

use std::collections::BTreeMap;

use nigh_terms::Version;

use super::observer::Op;
use crate::ghost::Object;

/// An object in the store, with the version in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredObject {
    pub(super) op: Op,
    pub(super) version: Version,
}

/// A home's call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum StoreCall {
    Read(Object),
    Put(Object, StoredObject),
    Delete(Object),
    /// The objects of a bucket after one, at most this many.
    List {
        namespace: u8,
        shard: u16,
        after: Option<Object>,
        limit: usize,
    },
}

/// The store's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum StoreAnswer {
    Holds(Option<StoredObject>),
    Done,
    Listed(Vec<(Object, Op)>),
    /// The call was not executed, and never will be.
    Refused,
}

impl StoreCall {
    /// True if the call changes the store.
    pub(super) const fn writes(&self) -> bool {
        matches!(self, Self::Put(..) | Self::Delete(_))
    }
}

/// The objects of the store.
#[derive(Debug, Default)]
pub(super) struct VirtualStore(BTreeMap<Object, StoredObject>);

impl VirtualStore {
    /// Executes `call`. `is_in` says which objects a bucket has.
    pub(super) fn carry_out(&mut self, call: &StoreCall, is_in: impl Fn(Object, u8, u16) -> bool) -> StoreAnswer {
        match *call {
            StoreCall::Read(object) => StoreAnswer::Holds(self.0.get(&object).copied()),
            StoreCall::Put(object, stored) => {
                self.0.insert(object, stored);
                StoreAnswer::Done
            }
            StoreCall::Delete(object) => {
                self.0.remove(&object);
                StoreAnswer::Done
            }
            StoreCall::List { namespace, shard, after, limit } => {
                let behind = self.0.iter().filter(|(object, _)| after.is_none_or(|after| **object > after));
                let of_it = behind.filter(|(object, _)| is_in(**object, namespace, shard));
                StoreAnswer::Listed(of_it.map(|(object, stored)| (*object, stored.op)).take(limit).collect())
            }
        }
    }

    /// The stored object; none if there is none.
    pub(super) fn get(&self, object: Object) -> Option<StoredObject> {
        self.0.get(&object).copied()
    }
}
