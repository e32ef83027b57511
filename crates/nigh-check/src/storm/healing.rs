//! After the faults: all started work must finish, each node must see the newest state of everything, the store must
//! have it, and nothing unneeded may remain.

use std::rc::Rc;

use nigh_protocol::LedgerRecord;

use super::observer::Breach;
use super::work::Step;
use super::world::Storm;
use crate::ghost::Object;

impl Storm {
    /// True if nothing is under way anywhere.
    pub(super) fn is_finished(&self) -> bool {
        self.unfinished().is_empty()
    }

    /// The unfinished work, in words; empty if there is none.
    pub(super) fn unfinished(&self) -> String {
        let mut left: Vec<String> = Vec::new();
        let mut unless = |done: bool, what: &dyn Fn() -> String| {
            if !done {
                left.push(what());
            }
        };
        for (namespace, attempts) in self.work.outstanding.iter().enumerate() {
            unless(attempts.is_empty(), &|| format!("attempts of namespace {namespace}: {attempts:?}"));
            let ready = &self.work.ready[namespace];
            unless(ready.is_empty(), &|| format!("requests of namespace {namespace} not dispatched: {ready:?}"));
        }
        unless(!self.work.actors.iter().any(|actor| actor.waits), &|| "clients wait".to_owned());
        for node in &self.nodes {
            let me = node.me;
            let Some(life) = node.life.as_ref().filter(|life| !life.leaving && !self.lost.contains(&me)) else {
                unless(false, &|| format!("{me:?} does not live"));
                continue;
            };
            unless(life.writers.is_empty(), &|| format!("{me:?} writes {:?}", life.writers));
            unless(life.readers.is_empty(), &|| format!("{me:?} reads {:?}", life.readers));
            unless(life.handing.is_empty() && life.listings.is_empty(), &|| format!("{me:?} lists or hands over"));
        }
        for &(at, _) in &self.map {
            let Some(seat) = self.seat_of(at).filter(|seat| !seat.home.is_retired()) else {
                unless(false, &|| format!("{at:?} is not there"));
                continue;
            };
            let waits = seat.dirty.usage(self.clock(seat.host)).objects;
            unless(waits == 0, &|| format!("{at:?} has {waits} objects to push"));
            unless(seat.is_idle(), &|| format!("{at:?} waits for the ledger or the store"));
        }
        left.join("; ")
    }

    /// Reads all objects at each node.
    pub(super) fn verify(&mut self) {
        for namespace in 0..self.plan.namespaces {
            let reads = self.plan.objects_of(namespace).into_iter().map(Step::Get);
            let steps: Rc<[Step]> = reads.chain([Step::List]).collect();
            for node in 0..self.plan.nodes {
                self.ask_to_invoke(namespace, Rc::clone(&steps), None, Some(node), true);
            }
        }
    }

    /// Checks the store, the ledgers and the directories when no work is under way.
    pub(super) fn check_what_is_left(&mut self) {
        let theirs = self.plan.theirs();
        for object in (0..self.plan.objects).filter(|object| !theirs.contains(object)) {
            let (held, newest) = (self.store.get(object).map(|stored| stored.op), self.observer.newest(object));
            if held != newest {
                self.breaks(Breach::Store, format!("the store holds {held:?} of object {object}, and not {newest:?}"));
            }
        }
        self.check_nothing_is_kept();
    }

    fn check_nothing_is_kept(&mut self) {
        let mut kept = Vec::new();
        for &(at, _) in &self.map {
            let Some(seat) = self.seat_of(at) else { continue };
            let (entries, forgettable) = (seat.home.objects(), seat.home.forgettable(usize::MAX).len());
            if entries != forgettable {
                let held: Vec<Object> =
                    (0..self.plan.objects).filter(|object| seat.home.version_of(object).is_some()).collect();
                kept.push(format!("{at:?} cannot forget {} of its entries {held:?}", entries - forgettable));
            }
            let mut held = Vec::new();
            for item in self.ledgers[usize::from(at.shard.0)].records() {
                let LedgerRecord::Write { object, writer, .. } = &item.replayed.record else { continue };
                // A live node confirms the answer to its last put only with its next put. Until then newer records of
                // the object stay too.
                if self.life(*writer).is_some() {
                    held.push(*object);
                } else if !held.contains(object) {
                    kept.push(format!("the ledger keeps {:?}, whose writer is gone", item.replayed));
                }
            }
        }
        if let Some(first) = kept.first() {
            let what = format!("{first}, and {} more", kept.len() - 1);
            self.breaks(Breach::Kept, what);
        }
    }
}
