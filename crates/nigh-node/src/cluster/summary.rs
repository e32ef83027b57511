//! The summary of a new home: the versions of other shards that writers to its shard may have seen.
//!
//! Writes that an earlier home forgot, or that were trimmed from the journal, carried tokens that are lost. These tokens
//! name versions that existed when the journal got the new epoch. After that, and after this node has seen the map of
//! homes up to the write with the new epoch, each other shard has
//! - no entry: the shard has no version;
//! - an entry without a serving home (claimed, or released): all versions are of the epochs in the entry or lower ones,
//!   and the next home's epoch is higher. The summary names the first version of the epoch after the highest: no node sees
//!   it before the next home covers it;
//! - a home with an epoch: this node asks that home for its newest version. Versions of a later epoch are younger than
//!   this node's own epoch. A home that does not answer is asked again until it answers or the entry changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::Revision;
use nigh_engine::nats::ShardHome;
use nigh_terms::{Epoch, NodeId, NodeNumber, Sequence, ShardId, Token, Version};
use tokio::sync::watch;
use tokio::time::timeout;

use super::newest::{Asker, HomeVersion};
use super::seen_map::SeenMap;

/// The wait before a silent home is asked again, if the map does not change.
const ASKED_AGAIN: Duration = Duration::from_millis(100);

/// What the map says of a shard.
enum ShardKnowledge {
    /// The shard has no version.
    Nothing,
    /// This version covers all of its versions.
    Version(Version),
    /// The shard's home must be asked.
    AtHome(NodeId, NodeNumber, u64, Epoch),
}

fn known(home: Option<&(ShardHome, Revision)>) -> ShardKnowledge {
    let Some((home, _)) = home else { return ShardKnowledge::Nothing };
    match (home.epoch, home.free) {
        (Some(epoch), false) => ShardKnowledge::AtHome(home.node.clone(), home.number, home.incarnation.0, epoch),
        _ => home.highest().map_or(ShardKnowledge::Nothing, |Epoch(highest)| {
            ShardKnowledge::Version(Version { epoch: Epoch(highest + 1), sequence: Sequence(0) })
        }),
    }
}

/// The summary of `shard`, whose new epoch the map shows since the write `told_at`. Ends when every other shard is known;
/// the caller drops the future if the shard is lost meanwhile.
pub(super) async fn summary(
    shard: ShardId,
    shards: u16,
    told_at: Revision,
    mut seen: watch::Receiver<Arc<SeenMap>>,
    asker: &Asker,
) -> Token {
    let mut token = Token::empty();
    let mut open: Vec<ShardId> = (0..shards).map(ShardId).filter(|other| *other != shard).collect();
    loop {
        let found = seen.wait_for(|map| map.upto >= told_at).await.map(|map| Arc::clone(&map));
        // The keeper has ended, and nothing waits for this any more.
        let Ok(map) = found else { std::future::pending().await };
        let mut at_home: BTreeMap<(NodeId, NodeNumber, u64), Vec<(ShardId, Epoch)>> = BTreeMap::new();
        open.retain(|&other| match known(map.entries.get(&other)) {
            ShardKnowledge::Nothing => false,
            ShardKnowledge::Version(version) => {
                token.see(other, version);
                false
            }
            ShardKnowledge::AtHome(node, number, life, epoch) => {
                at_home.entry((node, number, life)).or_default().push((other, epoch));
                true
            }
        });
        let asked = at_home.into_iter().map(|((node, number, life), shards)| asker.ask(node, number, life, shards));
        for HomeVersion { shard: other, version } in futures::future::join_all(asked).await.into_iter().flatten() {
            token.see(other, version);
            open.retain(|&shard| shard != other);
        }
        if open.is_empty() {
            return token;
        }
        // After the wait the home is asked again too.
        let _ = timeout(ASKED_AGAIN, seen.changed()).await;
    }
}
