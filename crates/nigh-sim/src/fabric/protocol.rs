//! The protocols' rules: when a function may be dispatched, when what was read is shown, when a put is acknowledged and
//! what it waits for, and what an invalidation sets free.

use super::engine::{Engine, Event, ResumePoint};
use super::home::Cover;
use super::system::Coherence;
use super::workflow::{ObjectId, Server};

impl Engine<'_> {
    pub(super) fn dispatch(&mut self, function: usize) {
        let server = self.server(function);
        if self.is_lost(server) {
            return;
        }
        let covered = self.node(function).covered;
        match self.coherence {
            Coherence::Lazy if self.home.has_pending(server) => self.barred.push(function),
            Coherence::Covered if covered < self.frontier => {
                self.traffic.questions += 1;
                let there = self.message();
                self.at(self.now + there, Event::AskAtHome(function));
            }
            _ => self.begin(function),
        }
    }

    /// Goes on once the node has applied what the cover names.
    pub(super) fn when_covered(&mut self, function: usize, cover: Cover, then: ResumePoint) {
        let node = self.node(function);
        if node.applied < cover.invalidations {
            return self.uncovered.push((function, cover, then));
        }
        node.cover(cover);
        match then {
            ResumePoint::Begin => self.begin(function),
            ResumePoint::EndStep => self.end_step(function),
        }
    }

    /// What was read may be shown.
    pub(super) fn show(&mut self, function: usize) {
        let cover = self.tasks[function].cover;
        if self.coherence == Coherence::Covered {
            self.when_covered(function, cover, ResumePoint::EndStep);
        } else {
            self.end_step(function);
        }
    }

    /// All bytes of a put are at the home.
    pub(super) fn commit(&mut self, function: usize) {
        let Some(object) = self.object(function) else { return };
        if self.coherence == Coherence::Lazy && self.home.is_pending(object) {
            return self.stalled.push(function);
        }
        let writer = self.server(function);
        let (version, sharers) = self.home.write(object, writer);
        let sharers =
            if matches!(self.coherence, Coherence::Uncached | Coherence::VersionCheck) { Vec::new() } else { sharers };
        for sharer in &sharers {
            let arrives = self.now + self.message();
            let node = &mut self.nodes[usize::from(sharer.0)];
            node.last_invalidation = node.last_invalidation.max(arrives);
            let applied = node.last_invalidation + self.run.hardware.reverse_map;
            self.traffic.invalidations += 1;
            if !self.is_lost(*sharer) {
                self.at(applied, Event::Invalidated(*sharer, object, version));
            }
        }
        let cover = self.home.cover(writer);
        let task = &mut self.tasks[function];
        task.version = version;
        task.cover = cover;
        task.invalidates |= !sharers.is_empty();
        if self.coherence == Coherence::Eager && !sharers.is_empty() {
            self.unanswered.push(function);
        } else {
            self.acknowledge(function);
        }
    }

    fn acknowledge(&mut self, function: usize) {
        let back = self.message();
        self.at(self.now + back, Event::PutAcknowledged(function));
    }

    pub(super) fn invalidated(&mut self, server: Server, object: ObjectId, version: u64) {
        if self.is_lost(server) {
            return;
        }
        self.nodes[usize::from(server.0)].invalidate(object, version);
        let back = self.message();
        self.at(self.now + back, Event::Applied(server, object));
        for (function, cover, then) in std::mem::take(&mut self.uncovered) {
            self.when_covered(function, cover, then);
        }
    }

    pub(super) fn applied(&mut self, server: Server, object: ObjectId) {
        self.home.applied(object, server);
        let (answered, unanswered) = std::mem::take(&mut self.unanswered)
            .into_iter()
            .partition(|put: &usize| self.object(*put).is_some_and(|object| !self.home.is_pending(object)));
        self.unanswered = unanswered;
        for put in answered {
            self.acknowledge(put);
        }
        for put in std::mem::take(&mut self.stalled) {
            self.commit(put);
        }
        for function in std::mem::take(&mut self.barred) {
            self.dispatch(function);
        }
    }
}
