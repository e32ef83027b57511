//! What is wrong with a node, by its status: what loses or delays work now, apart from what this machine lacks. Pure.

use nigh_node::status::{Level, Status};

/// The levels without which functions or writes do not work as they should. That others are off costs speed alone.
const NEEDED: [&str; 4] = ["isolation", "store", "writes", "python"];
/// A journal that is fuller than this is told: writes are rejected when it is full.
const JOURNAL_FULL_PERCENT: u64 = 90;

/// The faults, the gravest first; one line each.
pub(super) fn faults(status: &Status) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(draining) = &status.draining {
        faults.push(format!("it is draining and rejects new requests: {draining}"));
    }
    faults.extend(status.refused_writes.as_ref().map(|why| format!("writes are refused: {why}")));
    if let Some(cluster) = &status.cluster {
        faults.extend(cluster.servers.as_ref().and_then(|servers| servers.trouble()));
        if let Some(homes) = &cluster.homes {
            if !homes.without.is_empty() {
                faults.push(format!("{} of {} shards have no living home", homes.without.len(), homes.shards));
            }
            if let Some(first) = homes.troubles.first() {
                let count = homes.troubles.len();
                faults
                    .push(format!("{count} shards cannot be served here, first shard {}: {}", first.shard, first.why));
            }
        }
    }
    let needed = status.levels.iter().filter(|level| !level.on && NEEDED.contains(&level.name.as_str()));
    faults.extend(needed.map(|level| format!("{}: {}", level.name, level.detail)));
    let writes = &status.writes;
    if writes.failing > 0 {
        faults.push(format!("the store refuses {} writes; they are in the journal and retried", writes.failing));
    }
    if writes.homeless > 0 {
        let count = writes.homeless;
        faults.push(format!("{count} writes wait for buckets that the store lost: `nigh objects unpushed`"));
    }
    if writes.lost > 0 {
        faults.push(format!("{} ephemeral objects were lost for want of memory", writes.lost));
    }
    let (journal, most) = (writes.journal.bytes(), writes.journal_max.bytes());
    if most > 0 && journal / (most / 100).max(1) >= JOURNAL_FULL_PERCENT {
        faults.push(format!(
            "the journal is nearly full, {} of {}: writes are rejected when it is",
            writes.journal, writes.journal_max
        ));
    }
    for prewarmed in &status.stems {
        // One that is ready and lacks a module serves its functions.
        let trouble = prewarmed.trouble.as_ref().filter(|_| prewarmed.ready == 0);
        faults.extend(trouble.map(|why| format!("no {} is pre-warmed: {why}", prewarmed.runtime)));
    }
    if status.records_dropped > 0 {
        faults.push(format!("{} activation records were lost: the disk is too slow", status.records_dropped));
    }
    faults
}

/// The names of the levels that are off and that no fault tells.
pub(super) fn off(levels: &[Level]) -> Vec<&str> {
    let off = levels.iter().filter(|level| !level.on).map(|level| level.name.as_str());
    off.filter(|name| !NEEDED.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use nigh_node::status::{ClusterStatus, DrainStatus, HomesStatus, ServersStatus};
    use nigh_terms::ByteSize;

    use super::super::tests::fresh;
    use super::*;

    #[test]
    fn a_node_that_works_has_no_fault_whatever_its_machine_lacks() {
        assert!(faults(&fresh()).is_empty());
        assert_eq!(off(&fresh().levels), ["cache ways"]);
    }

    #[test]
    fn each_fault_is_told_with_its_figures() {
        let mut status = fresh();
        status.draining = Some(DrainStatus { invocations: 2, left_s: 30 });
        status.writes.failing = 3;
        status.writes.journal = ByteSize::mib(60);
        status.records_dropped = 4;
        status.cluster = Some(ClusterStatus {
            name: "lab".to_owned(),
            coherence: Default::default(),
            servers: Some(ServersStatus {
                configured: 3,
                connected: None,
                silent_since: Some("2026-11-26T06:00:00.000Z".to_owned()),
            }),
            members: Vec::new(),
            homes: Some(HomesStatus { shards: 8, without: vec![nigh_terms::ShardId(1)], ..HomesStatus::default() }),
            format: 1,
        });
        let told = faults(&status).join("\n");
        for part in [
            "waits for 2 invocations",
            "have confirmed nothing since 2026-11-26T06:00:00.000Z",
            "1 of 8 shards",
            "refuses 3 writes",
            "60 MiB of 64 MiB",
            "4 activation records",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
