//! The map of homes: of nodes that claim a shard at once one gets it, and its claim and epoch are higher than all before.

use nigh_engine::RegistryError;
use nigh_engine::nats::{Claimant, ClusterError, LedgerSettings, NatsHomes, NatsLedger};
use nigh_engine::{Ledger as _, LedgerError};
use nigh_terms::{Incarnation, NodeId, NodeNumber, ShardId};
use tokio::time::timeout;

use crate::servers::{PATIENCE, Servers};
use crate::under_test::{SHARD, append, content, put};

fn home(name: &str, life: u64) -> Claimant {
    Claimant { node: NodeId(name.to_owned()), number: NodeNumber(1), incarnation: Incarnation(life) }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nodes_that_claim_a_shard_at_once_one_becomes_its_home_and_a_lower_claim_yields() {
    let test = "of_nodes_that_claim_a_shard_at_once_one_becomes_its_home_and_a_lower_claim_yields";
    let Some(servers) = Servers::start(test, 3) else { return };
    let cluster = servers.connect(3).await;
    let homes = NatsHomes::open(cluster.clone()).await.unwrap();
    let mut watched = homes.watch().unwrap();
    assert_eq!(homes.get(SHARD).await.unwrap(), None);
    let names: Vec<String> = (0..6).map(|number| format!("n{number}")).collect();
    let claims = names.iter().map(async |name| homes.claim(SHARD, &home(name, 1), None).await);
    let won: Vec<_> = futures::future::join_all(claims).await.into_iter().filter_map(Result::ok).collect();
    let [first] = &won[..] else { panic!("{won:?}") };
    let seen = timeout(PATIENCE, watched.recv()).await.unwrap().unwrap();
    assert_eq!((seen.shard, &seen.home.node, seen.revision.0), (SHARD, &first.node, first.claim));

    let ledger = NatsLedger::new(cluster.clone(), LedgerSettings::default());
    let taken = ledger.take(first).await.unwrap();
    homes.took(first, NodeNumber(1), taken.epoch).await.unwrap();
    append(&ledger, put(1, "a"), content(1, 10), None).await.unwrap();
    let (entry, revision) = homes.get(SHARD).await.unwrap().unwrap();
    assert_eq!(entry.epoch, Some(taken.epoch));
    let stale = homes.claim(SHARD, &home("late", 1), None).await;
    assert!(matches!(stale, Err(RegistryError::Conflict { .. })), "{stale:?}");

    let freed = homes.free(SHARD, (&entry, revision)).await.unwrap();
    let (entry, revision) = homes.get(SHARD).await.unwrap().unwrap();
    assert!(entry.free && revision == freed && !entry.is_of(&first.node, first.incarnation));
    let second = homes.claim(SHARD, &home("second", 7), Some((&entry, revision))).await.unwrap();
    assert!(second.claim > first.claim);
    let (entry, _) = homes.get(SHARD).await.unwrap().unwrap();
    assert_eq!((entry.epoch, entry.before, entry.highest()), (None, Some(taken.epoch), Some(taken.epoch)));
    let new = NatsLedger::new(cluster.clone(), LedgerSettings::default());
    let again = new.take(&second).await.unwrap();
    assert!(again.epoch > taken.epoch);
    homes.took(&second, NodeNumber(1), again.epoch).await.unwrap();
    assert!(matches!(homes.took(first, NodeNumber(1), taken.epoch).await, Err(RegistryError::Conflict { .. })));
    // The first home wakes up and tries to take back what it had.
    let refused = ledger.take(first).await;
    assert!(matches!(refused, Err(ClusterError::Superseded { claim, .. }) if claim == second.claim), "{refused:?}");
    assert!(matches!(append(&ledger, put(2, "a"), content(2, 10), None).await, Err(LedgerError::Fenced { .. })));
    let listed = homes.list().await.unwrap();
    assert!(listed.len() == 1 && listed[0].home.is_of(&second.node, second.incarnation));
    append(&new, put(3, "a"), content(3, 10), None).await.unwrap();
    assert_eq!(new.epoch(ShardId(4)).0, 0, "another shard is not its");
}
