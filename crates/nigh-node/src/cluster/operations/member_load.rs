//! What a member has to do: each tells the others when they ask, for the table of members.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use nigh_engine::PresentMember;
use nigh_rpc::{Body, Method, Peers, Refusal, RefusalKind, Reply};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::cluster::{ClusterEngine, peer_address};

/// The method that asks a member. Head and body of the call are empty; the answer's head is a `MemberLoad`.
pub(in crate::cluster) const LOAD: Method = Method { number: 12, name: "load", head_max: 64 << 10, body_max: 0 };
/// How long a member may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What a member has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberLoad {
    /// When it started, RFC 3339.
    pub(crate) started: String,
    /// Number of its invocations that run or wait.
    pub(crate) invocations: usize,
    /// What its sandboxes have booked.
    pub(crate) booked: ByteSize,
    /// The memory for sandboxes.
    pub(crate) memory: ByteSize,
    /// What keeps it from its work; none if nothing does.
    #[serde(default)]
    pub(crate) trouble: Option<String>,
}

/// Tells what this node has to do.
pub(crate) trait ReportLoad: Send + Sync {
    /// What this node has to do now.
    fn load(&self) -> MemberLoad;
}

/// Answers another member.
pub(in crate::cluster) fn answer(reporter: Option<&Weak<dyn ReportLoad>>) -> Result<Reply, Refusal> {
    let not_now = || Refusal::new(RefusalKind::Closing, "this node starts or ends");
    let reporter: Arc<dyn ReportLoad> = reporter.and_then(Weak::upgrade).ok_or_else(not_now)?;
    let head = serde_json::to_vec(&reporter.load()).map_err(|error| Refusal::failed(error.to_string()))?;
    Ok(Reply { head: head.into(), body: Body::from(Bytes::new()) })
}

async fn ask(peers: &Peers, member: &PresentMember) -> Result<MemberLoad, String> {
    let by = Instant::now() + ANSWER_WITHIN;
    let answer = peers.call(&peer_address(member), &LOAD, b"", Bytes::new(), by).await;
    let answer = answer.map_err(|error| error.to_string())?;
    serde_json::from_slice(&answer.head).map_err(|error| error.to_string())
}

impl ClusterEngine {
    /// From now on this node answers what it has to do by `reporter`. Call this once.
    pub(crate) fn report_load_by(&self, reporter: &Arc<dyn ReportLoad>) {
        // A second call changes nothing.
        let _ = self.calls.load.set(Arc::downgrade(reporter));
    }

    /// What each of `members` has to do; an error for those that do not answer.
    pub(super) async fn loads(&self, members: &[PresentMember]) -> Vec<Result<MemberLoad, String>> {
        let own = self.calls.load.get().and_then(Weak::upgrade);
        let asked = members.iter().map(|member| {
            let own = own.as_ref().filter(|_| member.node == self.claimant.node);
            Box::pin(async move {
                match own {
                    Some(own) => Ok(own.load()),
                    None => ask(&self.peers, member).await,
                }
            })
        });
        join_all(asked).await
    }
}
