//! Waits until the homes of a new cluster no longer move.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nigh_node::local_cluster::LocalCluster;
use nigh_node::status::Status;

use crate::LabError;

/// How long that may take.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// The state folders and statuses of all nodes, once every shard has a home and each of the `nodes` nodes has some.
pub(crate) async fn settled(cluster: &mut LocalCluster, nodes: usize) -> Result<Vec<(PathBuf, Status)>, LabError> {
    let began = Instant::now();
    loop {
        let mut statuses = Vec::new();
        for node in cluster.nodes() {
            if let Some(status) = node.status().await {
                statuses.push((node.state().to_owned(), status));
            }
        }
        let homes = |status: &Status| status.cluster.as_ref().and_then(|own| own.homes.clone());
        let known: Vec<_> = statuses.iter().filter_map(|(_, status)| homes(status)).collect();
        let served: usize = known.iter().map(|homes| homes.own.len()).sum();
        let is_shared = known.len() == nodes && known.iter().all(|homes| !homes.own.is_empty());
        if is_shared && known.iter().all(|homes| usize::from(homes.shards) == served) {
            return Ok(statuses);
        }
        if began.elapsed() > SETTLED_WITHIN {
            return Err(LabError::Node(format!("{served} shards have homes after {} s", SETTLED_WITHIN.as_secs())));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
