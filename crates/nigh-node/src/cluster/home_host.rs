//! The interface by which the keeper of homes uses the object memory.

use async_trait::async_trait;
use nigh_engine::journal::JournalRecovery;
use nigh_terms::{Epoch, NodeNumber, ShardId, Token, Version};

/// Serves the shards whose home this node is. Calls of `take_home` and `let_go` for one shard do not overlap.
#[async_trait]
pub trait HomeHost: Send + Sync + 'static {
    /// This node becomes the home of `shard` under `recovered.epoch`: the ledger accepts its appends, and the map of homes
    /// shows it. `recovered` has the acknowledged writes that the store may lack. `summary` covers all versions of other
    /// shards that writers to this shard have seen. A host that was the home under a lower epoch starts over.
    ///
    /// # Errors
    /// Why the host cannot serve the shard. The keeper tries again, or another node takes the shard.
    async fn take_home(&self, shard: ShardId, recovered: JournalRecovery, summary: Token) -> Result<(), String>;

    /// This node stops being the home, if it was: it rejects requests, and returns when no append is under way. Another
    /// node takes the shard after that.
    async fn let_go(&self, shard: ShardId);

    /// The map shows that `home` is the home of `shard` under `epoch`. Called for every change, this node's own included,
    /// perhaps more than once. If this node is the home under a lower epoch, it is a former home from now on.
    fn home_is(&self, shard: ShardId, home: NodeNumber, epoch: Epoch);

    /// The newest version of `shard` that this node assigned as its home; none if it is not the home, or assigned none.
    fn newest(&self, shard: ShardId) -> Option<Version>;
}
