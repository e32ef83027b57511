//! The members of a cluster, their homes, and the NATS servers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::AdminSource;
use super::super::hierarchy::{ShownMember, members, own};
use super::super::refusal::Refusal;
use crate::status::{ClusterStatus, DrainStatus, Level};

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ClusterPage {
    /// This node.
    node: String,
    version: String,
    uptime_s: u64,
    draining: Option<DrainStatus>,
    /// The features of this node, on or off with the reason.
    levels: Vec<Level>,
    /// None if the node is alone.
    cluster: Option<ClusterStatus>,
    /// All members with their figures, this node included.
    members: BTreeMap<String, ShownMember>,
}

pub(super) async fn cluster<N: AdminSource>(node: &N) -> Result<ClusterPage, Refusal> {
    let status = node.status();
    let mut members = members(node).await?;
    members.insert(status.node.clone(), own(node));
    Ok(ClusterPage {
        node: status.node,
        version: status.version,
        uptime_s: status.uptime_s,
        draining: status.draining,
        levels: status.levels,
        cluster: status.cluster,
        members,
    })
}
