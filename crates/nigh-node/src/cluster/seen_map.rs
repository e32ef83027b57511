//! The map of homes that this node has seen, and the last write to the map that it has seen.

use std::collections::BTreeMap;

use nigh_engine::Revision;
use nigh_engine::nats::{HomeEntry, ShardHome};
use nigh_terms::{Epoch, ShardId};

/// The seen part of the map.
#[derive(Clone, Debug)]
pub(super) struct SeenMap {
    /// The newest known entry of each shard.
    pub(super) entries: BTreeMap<ShardId, (ShardHome, Revision)>,
    /// The watch has shown all writes up to this one; it shows the writes of all shards in order.
    pub(super) upto: Revision,
}

impl SeenMap {
    /// Nothing was seen yet.
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), upto: Revision(0) }
    }

    /// Takes an entry from the watch. True if it is new.
    pub(super) fn watched(&mut self, entry: HomeEntry) -> bool {
        self.upto = self.upto.max(entry.revision);
        self.learn(entry)
    }

    /// Takes an entry that was read, or that this node wrote. True if it is new.
    pub(super) fn learn(&mut self, HomeEntry { shard, home, revision }: HomeEntry) -> bool {
        let newer = self.entries.get(&shard).is_none_or(|(_, known)| *known < revision);
        if newer {
            self.entries.insert(shard, (home, revision));
        }
        newer
    }

    /// The home of `shard`, from when it has taken the shard until it releases it; none otherwise.
    pub(super) fn home(&self, shard: ShardId) -> Option<(&ShardHome, Epoch)> {
        let (home, _) = self.entries.get(&shard)?;
        Some((home, home.epoch?)).filter(|(home, _)| !home.free)
    }
}
