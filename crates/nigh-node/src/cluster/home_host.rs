//! Who serves as home: what the keeper of homes asks of the object memory.

use async_trait::async_trait;
use nigh_engine::journal::JournalRecovery;
use nigh_terms::{Epoch, NodeNumber, ShardId, Token, Version};

/// A part of this node that can be the home of shards. For one shard the calls of `take_home` and `let_go` come one after
/// the other.
#[async_trait]
pub trait HomeHost: Send + Sync + 'static {
    /// Is the home of `shard` from now on, under `recovered.epoch`: the ledger takes its appends, and the map of homes says
    /// so already. `recovered` is what earlier homes acknowledged and the store is not known to hold; `summary` covers what
    /// was seen of all other shards by whoever wrote to this one before. If it was the shard's home before, under a lower
    /// epoch, it begins anew, as after a failure of the journal.
    ///
    /// # Errors
    /// Why it cannot be: another node gets the shard, or this one tries again.
    async fn take_home(&self, shard: ShardId, recovered: JournalRecovery, summary: Token) -> Result<(), String>;

    /// Is the home no longer, if it was: takes no more requests, and returns when no append is under way. Another node
    /// takes the shard after that.
    async fn let_go(&self, shard: ShardId);

    /// The map says that `home` is the home of `shard` under `epoch`. Told of every change, its own included; the same may be
    /// told again. Where it is itself the home under a lower epoch, it was deposed: nothing that it does there counts.
    fn home_is(&self, shard: ShardId, home: NodeNumber, epoch: Epoch);

    /// The newest version that it has told anybody of `shard`, as its home; none where it is not, or has told none yet.
    fn newest(&self, shard: ShardId) -> Option<Version>;
}
