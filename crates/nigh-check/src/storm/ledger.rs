//! The ledger of one shard, by its contract: one epoch may append at a time, what is acknowledged is durable, a request
//! that was carried out gets its answer of then. A crash leaves a prefix of what was not synced, and that whole.

use std::collections::{BTreeMap, BTreeSet};

use nigh_objects::protocol::{AppendId, LedgerRecord, Replayed, Write};
use nigh_terms::{Epoch, Sequence, Version};

use super::observer::Op;
use crate::ghost::Object;

/// A record.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) replayed: Replayed<Object>,
    /// The bytes of a put; the write, of a delete.
    pub(super) op: Option<Op>,
    append: AppendId,
    stored: bool,
    settled: bool,
}

/// What becomes of a request to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is durable already.
    Before(Version),
    /// It waits for the sync.
    Waits,
    /// There is no room: it is not carried out, nor will it be.
    Refused,
    /// Another home has the shard.
    Fenced,
}

/// A ledger.
#[derive(Debug, Default)]
pub(super) struct VirtualLedger {
    pub(super) epoch: Epoch,
    last: Sequence,
    items: Vec<Item>,
    /// Written and not synced.
    buffered: Vec<Item>,
    /// Which requests of this epoch were carried out.
    carried_out: BTreeMap<AppendId, Version>,
    refused: BTreeSet<AppendId>,
    /// Nobody answers until then, nanoseconds.
    pub(super) down_until: u64,
}

impl VirtualLedger {
    /// The newest version there is, or can be said to be.
    pub(super) fn end(&self) -> Version {
        Version { epoch: self.epoch, sequence: Sequence(self.last.0 - self.buffered.len() as u64) }
    }

    pub(super) fn append(
        &mut self,
        epoch: Epoch,
        append: AppendId,
        record: LedgerRecord<Object>,
        op: Option<Op>,
    ) -> Taken {
        if epoch != self.epoch {
            return Taken::Fenced;
        }
        if let Some(version) = self.carried_out.get(&append) {
            return Taken::Before(*version);
        }
        if self.refused.contains(&append) {
            return Taken::Refused;
        }
        if !self.buffered.iter().any(|item| item.append == append) {
            self.last = self.last.next();
            let version = Version { epoch, sequence: self.last };
            let replayed = Replayed { version, record };
            self.buffered.push(Item { replayed, op, append, stored: false, settled: false });
        }
        Taken::Waits
    }

    /// There is no room for a request that was not met before: it is refused for good. True if that is so.
    pub(super) fn refuse(&mut self, epoch: Epoch, append: AppendId) -> bool {
        let met = self.carried_out.contains_key(&append) || self.buffered.iter().any(|item| item.append == append);
        epoch == self.epoch && !met && self.refused.insert(append)
    }

    /// The disk has the first `most` of what was written: those that are durable now.
    pub(super) fn sync(&mut self, most: usize) -> Vec<(AppendId, Item)> {
        let synced: Vec<Item> = self.buffered.drain(..most.min(self.buffered.len())).collect();
        for item in &synced {
            self.carried_out.insert(item.append, item.replayed.version);
            self.items.push(item.clone());
        }
        synced.into_iter().map(|item| (item.append, item)).collect()
    }

    /// How much is not synced.
    pub(super) fn unsynced(&self) -> usize {
        self.buffered.len()
    }

    /// A crash: what was not synced is gone.
    pub(super) fn tear(&mut self) {
        self.last = self.end().sequence;
        self.buffered.clear();
    }

    /// Another home takes the shard. All that was synced stands.
    pub(super) fn take(&mut self) -> Epoch {
        self.tear();
        self.epoch = self.epoch.next();
        self.last = Sequence(0);
        self.carried_out.clear();
        self.refused.clear();
        self.epoch
    }

    /// What a new home finds.
    pub(super) fn records(&self) -> &[Item] {
        &self.items
    }

    /// The store holds these versions, or newer ones of their objects; those will not be asked for again. What is both
    /// goes, and of an object what is older goes before.
    pub(super) fn trim(&mut self, stored: &[Version], settled: &[Version]) {
        for version in stored {
            let object = self.items.iter().find(|item| item.replayed.version == *version).and_then(Item::object);
            for item in self.items.iter_mut().filter(|item| object.is_some() && item.object() == object) {
                item.stored |= item.replayed.version <= *version;
            }
        }
        for item in &mut self.items {
            item.settled |= settled.contains(&item.replayed.version);
        }
        self.items.retain(|item| !(item.stored && item.settled));
    }
}

impl Item {
    /// The object of a write.
    pub(super) const fn object(&self) -> Option<Object> {
        match self.replayed.record {
            LedgerRecord::Write { object, .. } => Some(object),
            LedgerRecord::Fence { .. } => None,
        }
    }

    /// How its object is written.
    pub(super) const fn write(&self) -> Option<Write> {
        match self.replayed.record {
            LedgerRecord::Write { write, .. } => Some(write),
            LedgerRecord::Fence { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nigh_objects::protocol::{Member, NodeNumber, RequestId};
    use nigh_terms::{Incarnation, Token};

    use super::*;

    fn record(object: Object) -> LedgerRecord<Object> {
        let writer = Member { node: NodeNumber(0), incarnation: Incarnation(1) };
        let token = Arc::new(Token::empty());
        LedgerRecord::Write { object, write: Write::Put, token, writer, request: RequestId(0) }
    }

    #[test]
    fn what_is_synced_stands_is_asked_for_once_and_is_fenced_by_the_next_home() {
        let mut ledger = VirtualLedger::default();
        let first = ledger.take();
        for append in 1..=3 {
            assert_eq!(ledger.append(first, AppendId(append), record(0), None), Taken::Waits);
        }
        assert_eq!(ledger.sync(2).len(), 2);
        ledger.tear();
        let second = Version { epoch: first, sequence: Sequence(2) };
        assert_eq!(ledger.end(), second);
        assert_eq!(ledger.append(first, AppendId(2), record(0), None), Taken::Before(second));
        assert_eq!(ledger.append(first, AppendId(3), record(0), None), Taken::Waits, "it was torn");
        ledger.sync(9);
        let next = ledger.take();
        assert_eq!(ledger.append(first, AppendId(4), record(0), None), Taken::Fenced);
        assert_eq!((ledger.records().len(), ledger.end()), (3, Version { epoch: next, sequence: Sequence(0) }));
        ledger.trim(&[second], &[second]);
        assert_eq!(ledger.records().len(), 2, "the older one is not settled");
    }
}
