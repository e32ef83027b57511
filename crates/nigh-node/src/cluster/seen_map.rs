//! The map of homes as this node has seen it, and up to which write it has.

use std::collections::BTreeMap;

use nigh_engine::Revision;
use nigh_engine::nats::{HomeEntry, ShardHome};
use nigh_terms::{Epoch, ShardId};

/// What was seen of the map.
#[derive(Clone, Debug)]
pub(super) struct SeenMap {
    /// The newest known entry of each shard.
    pub(super) entries: BTreeMap<ShardId, (ShardHome, Revision)>,
    /// The watch has told all writes up to this one: it tells them in their order, whatever shard they are of.
    pub(super) upto: Revision,
}

impl SeenMap {
    /// Nothing was seen.
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), upto: Revision(0) }
    }

    /// The watch tells an entry; true if it was not known yet.
    pub(super) fn watched(&mut self, entry: HomeEntry) -> bool {
        self.upto = self.upto.max(entry.revision);
        self.learn(entry)
    }

    /// An entry was read, or is this node's own; true if it was not known yet.
    pub(super) fn learn(&mut self, HomeEntry { shard, home, revision }: HomeEntry) -> bool {
        let newer = self.entries.get(&shard).is_none_or(|(_, known)| *known < revision);
        if newer {
            self.entries.insert(shard, (home, revision));
        }
        newer
    }

    /// The home of `shard`, once it has taken it and as long as it has not let go.
    pub(super) fn home(&self, shard: ShardId) -> Option<(&ShardHome, Epoch)> {
        let (home, _) = self.entries.get(&shard)?;
        Some((home, home.epoch?)).filter(|(home, _)| !home.free)
    }
}
