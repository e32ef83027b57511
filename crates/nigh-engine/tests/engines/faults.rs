//! Servers that crash, stop and come back while homes append: what was acknowledged is there, once, in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_engine::nats::{LedgerSettings, NatsLedger};
use nigh_engine::{Ledger, LedgerError};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::history::History;
use crate::servers::Servers;
use crate::under_test::{Engine as _, Homes, SHARD, append, content, found, put};

const STREAM: &str = "test-ledger-3";
/// How long a fault lasts, beside the time it takes to be seen.
const FAULT: Duration = Duration::from_secs(2);

/// A home under load.
struct Load {
    homes: Homes,
    history: Arc<History>,
    writers: JoinHandle<()>,
}

impl Load {
    async fn begin(servers: &Servers) -> Self {
        let homes = Homes::new(servers.connect(3).await, LedgerSettings::default());
        let (ledger, _) = homes.open().await;
        let history = Arc::new(History::default());
        let writers = tokio::spawn(Arc::clone(&history).appenders(ledger, 8, 100_000));
        let load = Self { homes, history, writers };
        load.goes_on(20).await;
        load
    }

    /// Waits until so many more writes were acknowledged.
    async fn goes_on(&self, more: usize) {
        self.history.goes_on(more).await;
    }

    /// Ends the load, and asks another home what there is.
    async fn check(self, fault: &str) {
        self.history.stop();
        self.writers.await.unwrap();
        let begun = Instant::now();
        let (ledger, recovered) = self.homes.open().await;
        let (acknowledged, unknown) = (self.history.acknowledged().len(), self.history.unknown());
        println!(
            "{fault}: {acknowledged} acknowledged, {unknown} undecided; {} recovered in {:.2} s",
            recovered.records.len(),
            begun.elapsed().as_secs_f64()
        );
        self.history.check(&recovered, &*ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_crash_of_one_server_stops_nothing_and_loses_nothing() {
    let Some(mut servers) = Servers::start("the_crash_of_one_server_stops_nothing_and_loses_nothing", 3) else {
        return;
    };
    let load = Load::begin(&servers).await;
    let follower = (servers.leader(STREAM).await + 1) % 3;
    servers.kill(follower);
    load.goes_on(100).await;
    servers.run(follower);
    load.goes_on(50).await;
    let leader = servers.leader(STREAM).await;
    servers.kill(leader);
    load.goes_on(100).await;
    servers.run(leader);
    load.goes_on(50).await;
    load.check("kill -9 of a follower, then of the leader").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_two_servers_are_down_nothing_is_acknowledged_and_nothing_is_lost() {
    let test = "while_two_servers_are_down_nothing_is_acknowledged_and_nothing_is_lost";
    let Some(mut servers) = Servers::start(test, 3) else { return };
    let load = Load::begin(&servers).await;
    let leader = servers.leader(STREAM).await;
    let other = (leader + 1) % 3;
    servers.kill(leader);
    servers.kill(other);
    sleep(FAULT).await;
    let acknowledged = load.history.acknowledged().len();
    sleep(FAULT).await;
    assert_eq!(load.history.acknowledged().len(), acknowledged, "one server of three is no majority");
    servers.run(leader);
    servers.run(other);
    load.goes_on(100).await;
    load.check("kill -9 of two servers, the leader among them").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_crash_of_all_servers_at_once_loses_nothing() {
    let Some(mut servers) = Servers::start("the_crash_of_all_servers_at_once_loses_nothing", 3) else { return };
    let load = Load::begin(&servers).await;
    for _ in 0..2 {
        (0..3).for_each(|at| servers.kill(at));
        (0..3).for_each(|at| servers.run(at));
        load.goes_on(100).await;
    }
    load.check("kill -9 of all servers, twice").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stands_still_and_wakes_up_changes_nothing() {
    let Some(servers) = Servers::start("a_leader_that_stands_still_and_wakes_up_changes_nothing", 3) else { return };
    let load = Load::begin(&servers).await;
    for _ in 0..2 {
        let leader = servers.leader(STREAM).await;
        servers.stop(leader);
        load.goes_on(50).await;
        servers.go_on(leader);
        load.goes_on(50).await;
    }
    // So short that nobody else is chosen.
    let leader = servers.leader(STREAM).await;
    servers.stop(leader);
    sleep(FAULT / 4).await;
    servers.go_on(leader);
    load.goes_on(50).await;
    load.check("SIGSTOP of the leader, three times").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_was_not_decided_is_one_record_when_it_is_made_again() {
    let test = "an_append_that_was_not_decided_is_one_record_when_it_is_made_again";
    let Some(servers) = Servers::start(test, 3) else { return };
    let homes = Homes::new(servers.connect(3).await, LedgerSettings::default());
    // The streams are there, so that a short patience is enough.
    drop(homes.take().await.unwrap());
    let (ledger, _) = homes.take_by(servers.connect_for(3, Duration::from_secs(5)).await).await.unwrap();
    append(&ledger, put(1, "a"), content(1, 100), None).await.unwrap();
    (0..3).for_each(|at| servers.stop(at));
    // As the client sees it these are on their way.
    let undecided = futures::future::join_all((2..10).map(|request| {
        let ledger = ledger.clone();
        async move { append(&ledger, put(request, "a"), content(request, 100), None).await }
    }))
    .await;
    (0..3).for_each(|at| servers.go_on(at));
    assert!(undecided.iter().all(|one| matches!(one, Err(LedgerError::Failed(_)))), "{undecided:?}");
    assert!(matches!(ledger.check(SHARD), Err(LedgerError::Failed(_))), "it takes nothing before it was taken again");

    let (again, recovered) = homes.take().await.unwrap();
    let there = found(&recovered);
    println!("{} of {} undecided appends took place", there.len() - 1, undecided.len());
    for request in 1..10 {
        let known = there.iter().find(|(found, _)| *found == request).map(|(_, version)| *version);
        let repeated = append(&again, put(request, "a"), content(request, 100), None).await.unwrap();
        assert_eq!(repeated.repeated, known.is_some());
        assert!(known.is_none_or(|version| version == repeated.version));
    }
    let (_, recovered) = homes.open().await;
    let mut requests: Vec<u128> = found(&recovered).iter().map(|(request, _)| *request).collect();
    requests.sort_unstable();
    assert_eq!(requests, (1..10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_servers_do_not_answer_writes_are_told_to_come_back() {
    let Some(servers) = Servers::start("while_servers_do_not_answer_writes_are_told_to_come_back", 3) else { return };
    let settings = LedgerSettings { wait: Duration::from_millis(500), under_way_max: 4, ..LedgerSettings::default() };
    let homes = Homes::new(servers.connect(3).await, settings);
    let (ledger, _) = homes.take().await.unwrap();
    append(&ledger, put(1, "a"), content(1, 100), None).await.unwrap();
    (0..3).for_each(|at| servers.stop(at));
    let appending = |request: u128, ledger: NatsLedger| async move {
        append(&ledger, put(request, "a"), content(request, 100), None).await
    };
    let under_way: Vec<_> = (2..6).map(|request| tokio::spawn(appending(request, ledger.clone()))).collect();
    sleep(Duration::from_millis(100)).await;
    for request in 6..9 {
        let refused = appending(request, ledger.clone()).await;
        assert!(matches!(refused, Err(LedgerError::Unavailable(_))), "{refused:?}");
    }
    (0..3).for_each(|at| servers.go_on(at));
    for one in under_way {
        one.await.unwrap().unwrap();
    }
    let after = append(&ledger, put(9, "a"), content(9, 100), None).await.unwrap();
    assert_eq!(after.version.sequence.0, 6, "those that were refused took no version");
    assert_eq!(ledger.epoch(SHARD), after.version.epoch);
}
