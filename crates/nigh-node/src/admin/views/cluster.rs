//! The members of a cluster, their states and homes, and the NATS servers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::super::AdminSource;
use super::super::hierarchy::{ShownMember, members, own};
use super::super::refusal::Refusal;
use crate::cluster::ClusterTable;
use crate::status::{ClusterStatus, DrainStatus, Level};

/// How long the registry may take: a node that is cut off from it still shows what it knows itself.
const TABLE_WITHIN: Duration = Duration::from_secs(3);

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
    /// The members with their states, as `GET /cluster` has them; none if the node is alone, or with `table_missing`.
    table: Option<ClusterTable>,
    /// Why there is no table.
    table_missing: Option<String>,
}

async fn table<N: AdminSource>(node: &N) -> Result<Option<ClusterTable>, String> {
    let Some(cluster) = node.cluster() else { return Ok(None) };
    match tokio::time::timeout(TABLE_WITHIN, cluster.table()).await {
        Ok(table) => table.map(Some).map_err(|error| error.to_string()),
        Err(_) => Err(format!("the registry has not answered within {} s", TABLE_WITHIN.as_secs())),
    }
}

pub(super) async fn cluster<N: AdminSource>(node: &N) -> Result<ClusterPage, Refusal> {
    let status = node.status();
    let (members, table) = tokio::join!(members(node), table(node));
    let mut members = members?;
    members.insert(status.node.clone(), own(node));
    let (table, table_missing) = table.map_or_else(|why| (None, Some(why)), |table| (table, None));
    Ok(ClusterPage {
        node: status.node,
        version: status.version,
        uptime_s: status.uptime_s,
        draining: status.draining,
        levels: status.levels,
        cluster: status.cluster,
        members,
        table,
        table_missing,
    })
}
