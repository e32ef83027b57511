//! What a new home must assume that writers to its shard have seen of the other shards: its summary.
//!
//! What an earlier home forgot, or the journal was trimmed of, carried tokens that nobody has any more. They name versions
//! that existed when the new epoch came to stand in the journal. So once that stands, and the map of homes has been seen up
//! to the write that tells it, each other shard has
//! - no entry: no version of it exists;
//! - an entry without a reign (claimed, or let go): all its versions are of the epochs that the entry names or lower ones,
//!   and the next home's is higher. The summary names the first version of the epoch behind the highest: it exists for
//!   nobody before the next home covers it;
//! - a home with an epoch: that home is asked for the newest version that it has told. Versions of a later epoch are
//!   younger than this node's own. A home that does not answer lives, or loses the shard: it is asked again until the
//!   entry changes.

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

/// How long a home that did not answer is left alone, if the map does not change before.
const ASKED_AGAIN: Duration = Duration::from_millis(100);

/// What is known of a shard at once.
enum ShardKnowledge {
    /// Nothing was written.
    Nothing,
    /// This version covers all.
    Version(Version),
    /// Its home knows.
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

/// The summary of `shard`, whose new epoch was told by the write at `told_at`. Does not end before every other shard is
/// known: to be dropped if the shard is lost meanwhile.
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
        // Without a keeper this comes to no end.
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
        // Changed or not, it is looked at again.
        let _ = timeout(ASKED_AGAIN, seen.changed()).await;
    }
}
