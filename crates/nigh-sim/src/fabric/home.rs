//! The memory server's directory, and the copies of each compute server. State only; the engine acts on it.

use std::collections::{BTreeMap, BTreeSet};

use super::picos::Picos;
use super::workflow::{ObjectId, Server, Workflow};

/// An object at its home.
#[derive(Debug, Clone, Default)]
struct Entry {
    version: u64,
    sharers: BTreeSet<Server>,
    /// Invalidations that are not yet answered, by sharer.
    pending: BTreeMap<Server, u32>,
}

/// What a node may show once it has applied the first `invalidations` sent to it: every version up to `sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cover {
    pub(super) invalidations: u64,
    pub(super) sequence: u64,
}

/// The directory.
#[derive(Debug)]
pub(super) struct Home {
    entries: Vec<Entry>,
    /// Invalidations sent to each server.
    sent: Vec<u64>,
    /// Writes of all objects.
    sequence: u64,
}

impl Home {
    pub(super) fn new(workflow: &Workflow, servers: usize) -> Self {
        let entry = |sharers: &Vec<Server>| Entry { sharers: sharers.iter().copied().collect(), ..Entry::default() };
        let entries = workflow.objects.iter().map(|object| entry(&object.cached_at)).collect();
        Self { entries, sent: vec![0; servers], sequence: 0 }
    }

    fn entry(&mut self, object: ObjectId) -> &mut Entry {
        &mut self.entries[usize::from(object.0)]
    }

    pub(super) fn version(&self, object: ObjectId) -> u64 {
        self.entries[usize::from(object.0)].version
    }

    pub(super) const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn cover(&self, server: Server) -> Cover {
        Cover { invalidations: self.sent[usize::from(server.0)], sequence: self.sequence }
    }

    pub(super) fn add_sharer(&mut self, object: ObjectId, server: Server) {
        self.entry(object).sharers.insert(server);
    }

    /// A write takes place: its version, and who is to be told. The writer is the one sharer from then on.
    pub(super) fn write(&mut self, object: ObjectId, writer: Server) -> (u64, Vec<Server>) {
        self.sequence += 1;
        let entry = self.entry(object);
        entry.version += 1;
        let told: Vec<Server> = entry.sharers.iter().copied().filter(|sharer| *sharer != writer).collect();
        entry.sharers = BTreeSet::from([writer]);
        for sharer in &told {
            *entry.pending.entry(*sharer).or_default() += 1;
        }
        let version = entry.version;
        for sharer in &told {
            self.sent[usize::from(sharer.0)] += 1;
        }
        (version, told)
    }

    /// A sharer says that it has applied an invalidation of the object.
    pub(super) fn applied(&mut self, object: ObjectId, sharer: Server) {
        let pending = &mut self.entry(object).pending;
        if let Some(count) = pending.get_mut(&sharer) {
            *count -= 1;
            if *count == 0 {
                pending.remove(&sharer);
            }
        }
    }

    pub(super) fn is_pending(&self, object: ObjectId) -> bool {
        !self.entries[usize::from(object.0)].pending.is_empty()
    }

    pub(super) fn has_pending(&self, server: Server) -> bool {
        self.entries.iter().any(|entry| entry.pending.contains_key(&server))
    }
}

/// A compute server: its copies, and when its link's two directions are free.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Versions of the copies.
    copies: BTreeMap<ObjectId, u64>,
    /// No copy older than this is kept.
    floors: BTreeMap<ObjectId, u64>,
    /// Objects on their way, and which functions wait for them too.
    pub(super) fetching: BTreeMap<ObjectId, Vec<usize>>,
    /// Invalidations applied.
    pub(super) applied: u64,
    /// What it may show.
    pub(super) covered: u64,
    pub(super) down_free: Picos,
    pub(super) up_free: Picos,
    /// When the last invalidation sent to it will have arrived: links keep their order.
    pub(super) last_invalidation: Picos,
}

impl Node {
    pub(super) fn copy(&self, object: ObjectId) -> Option<u64> {
        self.copies.get(&object).copied()
    }

    pub(super) fn install(&mut self, object: ObjectId, version: u64) {
        if self.floors.get(&object).is_none_or(|floor| version >= *floor) {
            self.copies.insert(object, version);
        }
    }

    pub(super) fn drop_copy(&mut self, object: ObjectId) {
        self.copies.remove(&object);
    }

    /// A copy older than the version goes, and none older comes.
    pub(super) fn invalidate(&mut self, object: ObjectId, version: u64) {
        self.applied += 1;
        self.floors.insert(object, version);
        if self.copy(object).is_some_and(|copy| copy < version) {
            self.drop_copy(object);
        }
    }

    /// The cover counts as soon as the invalidations before it are applied.
    pub(super) fn cover(&mut self, cover: Cover) {
        if self.applied >= cover.invalidations {
            self.covered = self.covered.max(cover.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workflow::Object;
    use super::*;

    #[test]
    fn a_write_tells_the_other_sharers_and_leaves_the_writer_alone() {
        let object = Object { bytes: 1, cached_at: vec![Server(0), Server(1), Server(2)] };
        let workflow = Workflow { name: "", objects: vec![object], functions: Vec::new() };
        let mut home = Home::new(&workflow, 3);
        assert_eq!(home.write(ObjectId(0), Server(1)), (1, vec![Server(0), Server(2)]));
        assert!(home.is_pending(ObjectId(0)) && home.has_pending(Server(2)) && !home.has_pending(Server(1)));
        assert_eq!(home.cover(Server(2)), Cover { invalidations: 1, sequence: 1 });
        assert_eq!(home.write(ObjectId(0), Server(1)), (2, Vec::new()));
        home.applied(ObjectId(0), Server(0));
        home.applied(ObjectId(0), Server(2));
        assert!(!home.is_pending(ObjectId(0)));
    }

    #[test]
    fn no_copy_older_than_an_invalidation_is_kept_and_a_cover_counts_once_they_are_applied() {
        let mut node = Node::default();
        let cover = Cover { invalidations: 1, sequence: 5 };
        node.cover(cover);
        assert_eq!(node.covered, 0);
        node.install(ObjectId(0), 1);
        node.invalidate(ObjectId(0), 2);
        node.install(ObjectId(0), 1);
        assert_eq!(node.copy(ObjectId(0)), None);
        node.install(ObjectId(0), 2);
        node.cover(cover);
        assert_eq!((node.copy(ObjectId(0)), node.covered), (Some(2), 5));
    }
}
