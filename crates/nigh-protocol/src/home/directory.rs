//! The directory of a home: the newest version of each object, and who must be told of a newer one.

use std::sync::Arc;

use nigh_terms::{Monotonic, Token, Version, invariant};

use super::super::message::{FromHome, Member, ObjectName, Stamp, Write};
use super::super::rules::{Rule, Rules};
use super::super::sharers::Sharers;
use super::{Entry, Home, HomeOutput, WaitingFetch};

impl<O: ObjectName, R: Rules> Home<O, R> {
    /// Makes `version` the newest of its object, and invalidates the sharers' older copies, except the writer's.
    pub(super) fn apply(
        &mut self,
        now: Monotonic,
        object: &O,
        write: Write,
        stamp: &Stamp,
        writer: Member,
        out: &mut Vec<HomeOutput<O>>,
    ) {
        let own = self.peers.living(writer).map(|peer| peer.sharer);
        let is_resident = self.is_resident(writer);
        let entry = self.directory.get_or_insert_with(object, Entry::default);
        let sharers = match (write, own) {
            (Write::Put, Some(own)) if !is_resident => Sharers::only(own),
            (Write::Put | Write::Delete | Write::Outside, _) => Sharers::default(),
        };
        let before = std::mem::take(entry);
        let Stamp { version, others } = stamp.clone();
        let (absent, pushed) = (write == Write::Delete, write == Write::Outside);
        *entry = Entry { version, others, sharers, absent, pushed, ..Entry::default() };
        if !pushed || self.rules.hold(Rule::OutsideIsTold) {
            self.tell(now, object, &before.sharers, own, (version, false), out);
            if !is_resident {
                self.tell_resident(now, object, version, out);
            }
        }
        self.drop_if_idle(object);
        self.mind_the_limit(out);
    }

    /// Invalidates the local node's copy. The directory does not record whether the local node has one.
    pub(super) fn tell_resident(&mut self, now: Monotonic, object: &O, version: Version, out: &mut Vec<HomeOutput<O>>) {
        let Some(resident) = self.resident.filter(|_| self.rules.hold(Rule::TellResident)) else { return };
        if let Some(sharer) = self.peers.living(resident).map(|peer| peer.sharer) {
            self.tell(now, object, &Sharers::only(sharer), None, (version, false), out);
        }
    }

    /// Drops the object's entry if the store has its version and no node but the local one shares it.
    pub(super) fn drop_if_idle(&mut self, object: &O) {
        if self.resident.is_none() || self.is_held_by_load(object) {
            return;
        }
        let lives = |sharer: &super::super::sharers::SharerId| self.peers.lives(*sharer);
        let idle = |entry: &Entry| entry.pushed && !entry.sharers.as_slice().iter().any(lives);
        if self.directory.get(object).is_some_and(idle)
            && let Some(entry) = self.directory.remove(object)
        {
            self.forgotten(entry.version, entry.others);
        }
    }

    /// True if a look-up of the object in the store is under way: its result may be older than the entry.
    pub(super) fn is_held_by_load(&self, object: &O) -> bool {
        self.loading.contains_key(object) && self.rules.hold(Rule::LoadHolds)
    }

    /// The entry of this version was dropped. Its version and token are remembered in summary.
    pub(super) fn forgotten(&mut self, version: Version, others: Option<Arc<Token>>) {
        self.check_known(version);
        if let Some(others) = others.filter(|_| self.rules.hold(Rule::Summary)) {
            Arc::make_mut(self.summary.get_or_insert_default()).join(&others);
        }
        self.forgotten = self.forgotten.max(version);
    }

    pub(super) fn tell(
        &mut self,
        now: Monotonic,
        object: &O,
        sharers: &Sharers,
        except: Option<super::super::sharers::SharerId>,
        (version, recall): (Version, bool),
        out: &mut Vec<HomeOutput<O>>,
    ) {
        for &sharer in sharers.as_slice() {
            if Some(sharer) == except {
                continue;
            }
            let Some((to, body, owed)) = self.peers.invalidate(now, sharer, object, version, recall) else { continue };
            if owed > self.limits.owed_max {
                self.give_up(to, out);
            } else {
                self.send(to, body, out);
            }
        }
    }

    pub(super) fn loaded(&mut self, now: Monotonic, object: O, absent: bool, out: &mut Vec<HomeOutput<O>>) {
        let Some(waiting) = self.loading.remove(&object) else { return };
        // The entry is newer than what the store returned: a write was applied meanwhile.
        if self.directory.get(&object).is_none() {
            let entry = Entry { version: self.forgotten, absent, pushed: true, summarised: true, ..Entry::default() };
            self.directory.insert(object.clone(), entry);
        }
        for one in waiting {
            self.answer(now, &object, one, out);
        }
        self.drop_if_idle(&object);
        self.mind_the_limit(out);
    }

    /// Answers a fetch of an object that has an entry; a node that may cache the answer becomes a sharer.
    pub(super) fn answer(&mut self, now: Monotonic, object: &O, waiting: WaitingFetch, out: &mut Vec<HomeOutput<O>>) {
        let WaitingFetch { from, attempt, shared } = waiting;
        let Some((sharer, cover)) =
            self.peers.admit(from, now, &self.rules).map(|peer| (peer.sharer, peer.cover(self.newest)))
        else {
            return;
        };
        let Some(entry) = self.directory.get_mut(object) else { return };
        let version = entry.version;
        if shared && self.resident != Some(from) {
            entry.sharers.add(sharer, |one| self.peers.lives(one));
        }
        let others = if entry.summarised { self.summary.clone() } else { entry.others.clone() };
        let stamp = Stamp { version, others };
        let (object, absent) = (object.clone(), entry.absent);
        self.check_known(version);
        self.send(from, FromHome::Found { attempt, object, stamp, absent, cover }, out);
    }

    pub(super) fn forget(&mut self, now: Monotonic, object: &O, out: &mut Vec<HomeOutput<O>>) {
        if !self.directory.get(object).is_some_and(|entry| entry.pushed) || self.is_held_by_load(object) {
            return;
        }
        let Some(entry) = self.directory.remove(object) else { return };
        self.forgotten(entry.version, entry.others);
        if self.rules.hold(Rule::Recall) {
            self.tell(now, object, &entry.sharers, None, (entry.version, true), out);
        }
    }

    /// The cover in an answer ends at `newest`, so the reader of a newer version would not wait for its invalidations.
    pub(super) fn check_known(&self, version: Version) {
        let (shard, newest) = (self.shard, self.newest);
        invariant!(version <= newest, "the home of {shard} has an entry of {version}, newer than its newest {newest}");
    }

    pub(super) fn mind_the_limit(&self, out: &mut Vec<HomeOutput<O>>) {
        if self.directory.len() > self.limits.directory_max {
            out.push(HomeOutput::Crowded);
        }
    }
}
