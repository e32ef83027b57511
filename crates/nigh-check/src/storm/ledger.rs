//! The ledger of one shard, by its contract: one epoch may append at a time, in the order of its home's requests.
//! Acknowledged records are durable, and a repeated request gets its first response. After a crash a prefix of the
//! unsynced records survives, each whole or not at all.

use std::collections::BTreeSet;

use nigh_protocol::{AppendId, LedgerRecord, ReplayedRecord, Write};
use nigh_terms::{Epoch, Sequence, Version};

use super::observer::Op;
use crate::ghost::Object;

/// A record.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) replayed: ReplayedRecord<Object>,
    /// The bytes of a put, or the write of a delete.
    pub(super) op: Option<Op>,
    pub(super) append: AppendId,
    stored: bool,
    settled: bool,
}

/// A record that a home wants appended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Turn {
    pub(super) append: AppendId,
    pub(super) record: LedgerRecord<Object>,
    pub(super) op: Option<Op>,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendReply {
    /// The record is durable already.
    Before(Version),
    /// The record waits for the sync.
    Waits,
    /// An earlier request of the home has not arrived.
    Early,
    /// The ledger is full: the request is not executed, and never will be.
    Refused,
    /// Another home has the shard.
    Fenced,
}

/// The model of a ledger.
#[derive(Debug, Default)]
pub(super) struct VirtualLedger {
    pub(super) epoch: Epoch,
    last: Sequence,
    items: Vec<Item>,
    /// Records that are written and not synced.
    buffered: Vec<Item>,
    /// The results of this epoch's requests, in order; none for a refused request.
    answered: Vec<Option<Version>>,
    /// The time in nanoseconds until which the ledger does not answer.
    pub(super) down_until: u64,
}

impl VirtualLedger {
    /// The newest known version.
    pub(super) fn end(&self) -> Version {
        Version { epoch: self.epoch, sequence: Sequence(self.last.0 - self.buffered.len() as u64) }
    }

    /// Handles the request with index `place`, from 0, among those of its home. Refuses it if `is_full` and the request
    /// was not decided before.
    pub(super) fn append(&mut self, epoch: Epoch, place: usize, asked: Turn, is_full: bool) -> AppendReply {
        let (decided, taken) = (self.answered.len(), self.answered.len() + self.buffered.len());
        if epoch != self.epoch {
            return AppendReply::Fenced;
        }
        if let Some(answer) = self.answered.get(place) {
            return answer.map_or(AppendReply::Refused, AppendReply::Before);
        }
        if place < taken {
            return AppendReply::Waits;
        }
        if place > taken {
            return AppendReply::Early;
        }
        if is_full && decided == taken {
            self.answered.push(None);
            return AppendReply::Refused;
        }
        let Turn { append, record, op } = asked;
        self.last = self.last.next();
        let replayed = ReplayedRecord { version: Version { epoch, sequence: self.last }, record };
        self.buffered.push(Item { replayed, op, append, stored: false, settled: false });
        AppendReply::Waits
    }

    /// Syncs the first `most` written records. Returns those that became durable.
    pub(super) fn sync(&mut self, most: usize) -> Vec<Item> {
        let synced: Vec<Item> = self.buffered.drain(..most.min(self.buffered.len())).collect();
        self.answered.extend(synced.iter().map(|item| Some(item.replayed.version)));
        self.items.extend(synced.iter().cloned());
        synced
    }

    /// The number of unsynced records.
    pub(super) fn unsynced(&self) -> usize {
        self.buffered.len()
    }

    /// A crash: unsynced records are gone.
    pub(super) fn tear(&mut self) {
        self.last = self.end().sequence;
        self.buffered.clear();
    }

    /// Another home takes the shard. All synced records stay.
    pub(super) fn take(&mut self) -> Epoch {
        self.tear();
        self.epoch = self.epoch.next();
        self.last = Sequence(0);
        self.answered.clear();
        self.epoch
    }

    /// The records that a new home finds.
    pub(super) fn records(&self) -> &[Item] {
        &self.items
    }

    /// The store has the versions in `stored`, or newer ones. Records that are in both lists are removed, of one object
    /// the older before the newer: a home that found only the older one would take it for the newest.
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
        let mut kept = BTreeSet::new();
        self.items.retain(|item| {
            let stays = !(item.stored && item.settled) || item.object().is_some_and(|object| kept.contains(&object));
            kept.extend(item.object().filter(|_| stays));
            stays
        });
    }
}

impl Item {
    /// The object of a write; none for any other record.
    pub(super) const fn object(&self) -> Option<Object> {
        match self.replayed.record {
            LedgerRecord::Write { object, .. } => Some(object),
            LedgerRecord::Fence { .. } => None,
        }
    }

    /// What the write does to its object; none for any other record.
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

    use nigh_protocol::{Member, NodeNumber, RequestId};
    use nigh_terms::{Incarnation, Token};

    use super::*;

    fn record(object: Object) -> LedgerRecord<Object> {
        let writer = Member { node: NodeNumber(0), incarnation: Incarnation(1) };
        let token = Arc::new(Token::empty());
        LedgerRecord::Write { object, write: Write::Put, token, writer, request: RequestId(0) }
    }

    fn append(ledger: &mut VirtualLedger, epoch: Epoch, place: usize, is_full: bool) -> AppendReply {
        let asked = Turn { append: AppendId { epoch, number: place as u64 + 1 }, record: record(0), op: None };
        ledger.append(epoch, place, asked, is_full)
    }

    #[test]
    fn what_is_synced_stands_is_asked_for_once_and_is_fenced_by_the_next_home() {
        let mut ledger = VirtualLedger::default();
        let first = ledger.take();
        for place in 0..3 {
            assert_eq!(append(&mut ledger, first, place, false), AppendReply::Waits);
        }
        assert_eq!(ledger.sync(2).len(), 2);
        ledger.tear();
        let second = Version { epoch: first, sequence: Sequence(2) };
        assert_eq!(ledger.end(), second);
        assert_eq!(append(&mut ledger, first, 1, true), AppendReply::Before(second));
        assert_eq!(append(&mut ledger, first, 3, false), AppendReply::Early, "the one before was torn");
        assert_eq!(append(&mut ledger, first, 2, true), AppendReply::Refused);
        assert_eq!(append(&mut ledger, first, 2, false), AppendReply::Refused, "for good");
        assert_eq!(append(&mut ledger, first, 3, false), AppendReply::Waits);
        ledger.sync(9);
        let next = ledger.take();
        assert_eq!(append(&mut ledger, first, 4, false), AppendReply::Fenced);
        assert_eq!((ledger.records().len(), ledger.end()), (3, Version { epoch: next, sequence: Sequence(0) }));
        ledger.trim(&[second], &[second]);
        assert_eq!(ledger.records().len(), 3, "the older one is not settled, and would be taken for the newest");
        ledger.trim(&[], &[Version { epoch: first, sequence: Sequence(1) }]);
        assert_eq!(ledger.records().len(), 1);
    }
}
