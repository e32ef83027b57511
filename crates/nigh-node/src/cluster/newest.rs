//! Homes tell each other the newest versions of their shards: one small call for all shards of a home.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_engine::PresentMember;
use nigh_rpc::{Body, Call, Method, PeerAddress, Peers, Refusal, RefusalKind, Reply};
use nigh_terms::{Epoch, NodeId, NodeNumber, Sequence, ShardId, Version};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::home_host::HomeHost;

/// The method that asks a home. Method numbers below 16 belong to the keepers of homes.
pub(super) const NEWEST: Method = Method { number: 1, name: "newest", head_max: 64 << 10, body_max: 0 };
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// The shards asked for, and the epoch of each.
type HomeVersionsRequest = Vec<(ShardId, Epoch)>;
/// The newest version of each shard, in the order of the request; none if the answering node is not its home under that
/// epoch.
type HomeVersionsReply = Vec<Option<Version>>;

/// A home's newest version.
pub(super) struct HomeVersion {
    pub(super) shard: ShardId,
    pub(super) version: Version,
}

/// The epochs of this node's homes, and the host that serves under them.
#[derive(Clone)]
pub(super) struct OwnEpochs {
    epochs: Arc<Mutex<BTreeMap<ShardId, Epoch>>>,
    host: Arc<dyn HomeHost>,
}

impl OwnEpochs {
    pub(super) fn new(host: Arc<dyn HomeHost>) -> Self {
        Self { epochs: Arc::default(), host }
    }

    /// Begins an epoch, which is about to be written to the map and has no version yet.
    pub(super) fn begin(&self, shard: ShardId, epoch: Epoch) {
        self.epochs.lock().insert(shard, epoch);
    }

    /// Ends an epoch.
    pub(super) fn end(&self, shard: ShardId) {
        self.epochs.lock().remove(&shard);
    }

    fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.epochs.lock().get(&shard).copied()
    }

    /// The newest version of `epoch`; none if that epoch is over, or another node's.
    fn newest(&self, shard: ShardId, epoch: Epoch) -> Option<Version> {
        let ours = |epoch| self.epoch(shard) == Some(epoch);
        if !ours(epoch) {
            return None;
        }
        let first = Version { epoch, sequence: Sequence(0) };
        let newest = self.host.newest(shard).filter(|version| version.epoch == epoch).unwrap_or(first);
        // A host that released the shard meanwhile may have forgotten versions.
        ours(epoch).then_some(newest)
    }

    /// Answers another home.
    pub(super) fn answer(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        let bad = |error: serde_json::Error| Refusal::new(RefusalKind::Failed, error.to_string());
        let asked: HomeVersionsRequest = serde_json::from_slice(&call.head).map_err(bad)?;
        let answered: HomeVersionsReply = asked.into_iter().map(|(shard, epoch)| self.newest(shard, epoch)).collect();
        let head = serde_json::to_vec(&answered).map_err(bad)?;
        Ok(Reply { head: head.into(), body: Body::from(Bytes::new()) })
    }
}

/// Asks homes for their newest versions.
pub(super) struct Asker {
    pub(super) own: NodeNumber,
    pub(super) own_life: u64,
    pub(super) epochs: OwnEpochs,
    pub(super) peers: Peers,
    pub(super) present: watch::Receiver<Vec<PresentMember>>,
}

impl Asker {
    /// Asks the home `node`, in its incarnation `life`, for the newest versions of `shards`. Returns those that it
    /// answers.
    pub(super) async fn ask(
        &self,
        node: NodeId,
        number: NodeNumber,
        life: u64,
        shards: HomeVersionsRequest,
    ) -> Vec<HomeVersion> {
        let answered = if (number, life) == (self.own, self.own_life) {
            shards.iter().map(|(shard, epoch)| self.epochs.newest(*shard, *epoch)).collect()
        } else {
            match self.call(&node, life, &shards).await {
                Ok(answered) => answered,
                Err(reason) => {
                    tracing::debug!(%node, reason, "a home did not tell its newest versions");
                    return Vec::new();
                }
            }
        };
        let told = shards.into_iter().zip(answered);
        told.filter_map(|((shard, _), version)| Some(HomeVersion { shard, version: version? })).collect()
    }

    async fn call(&self, node: &NodeId, life: u64, shards: &HomeVersionsRequest) -> Result<HomeVersionsReply, String> {
        let address = {
            let present = self.present.borrow();
            let member = present.iter().find(|member| member.node == *node && member.incarnation.0 == life);
            member.ok_or("the node is no member")?.presence.address.clone()
        };
        let peer = PeerAddress { name: node.0.as_str().into(), address: address.into(), incarnation: Some(life) };
        let head = serde_json::to_vec(shards).map_err(|error| error.to_string())?;
        let by = Instant::now() + ANSWER_WITHIN;
        let call = self.peers.call(&peer, &NEWEST, &head, Bytes::new(), by);
        let mut present = self.present.clone();
        let lives = |member: &PresentMember| member.node == *node && member.incarnation.0 == life;
        let gone = async move {
            let is_known = present.wait_for(|present| !present.iter().any(lives)).await.is_ok();
            if !is_known {
                std::future::pending::<()>().await;
            }
        };
        let answer = tokio::select! {
            answer = call => answer.map_err(|error| error.to_string())?,
            // Its shards get another home, which is asked then.
            () = gone => return Err("the node is no member any more".to_owned()),
        };
        let answered: HomeVersionsReply = serde_json::from_slice(&answer.head).map_err(|error| error.to_string())?;
        if answered.len() == shards.len() {
            Ok(answered)
        } else {
            Err("the answer does not fit the request".to_owned())
        }
    }
}
