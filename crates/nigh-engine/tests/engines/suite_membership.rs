//! What every membership must do, and what a cluster's does when a node is silent.

use std::sync::Arc;
use std::time::Instant;

use nigh_engine::nats::{NatsMembership, TTL};
use nigh_engine::{LocalMembership, LocalRegistry, Members, Membership, NodeRole, Presence, StateFile};
use nigh_terms::{Incarnation, NodeId, NodeNumber, SystemClock};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::servers::{PATIENCE, Servers};

fn node(name: &str) -> NodeId {
    NodeId(name.to_owned())
}

fn presence() -> Presence {
    Presence::new(NodeNumber(7), "10.0.0.1:9410", [NodeRole::Run, NodeRole::Memory])
}

async fn conforms(membership: &dyn Membership) {
    let this = (membership.node().clone(), membership.incarnation());
    assert!(membership.alive().await.unwrap().contains(&this));
    assert!(membership.watch().borrow().contains(&this));
}

/// Waits until `expected` is true of the members.
async fn until(members: &mut watch::Receiver<Members>, expected: impl Fn(&Members) -> bool) {
    timeout(PATIENCE, members.wait_for(expected)).await.unwrap().unwrap();
}

#[tokio::test]
async fn one_machine_has_one_member_and_every_start_is_a_new_life() {
    let folder = tempfile::tempdir().unwrap();
    let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
    for life in 1..3 {
        let joined = LocalMembership::join(node("n1"), &registry).await.unwrap();
        assert_eq!(joined.incarnation(), Incarnation(life));
        conforms(&joined).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_see_each_other_come_go_and_fall_silent() {
    let Some(servers) = Servers::start("members_see_each_other_come_go_and_fall_silent", 3) else { return };
    let clock = Arc::new(SystemClock::new());
    let cluster = servers.connect(3).await;
    let told = presence();
    let after =
        |name, former| NatsMembership::join(cluster.clone(), node(name), former, &told, Arc::clone(&clock) as _);
    let join = |name| after(name, None);
    let (a, b, c) = (join("a").await.unwrap(), join("b").await.unwrap(), join("c").await.unwrap());
    conforms(&a).await;
    let mut seen = a.watch();
    let all = vec![(node("a"), a.incarnation()), (node("b"), b.incarnation()), (node("c"), c.incarnation())];
    until(&mut seen, |members| *members == all).await;
    assert!(c.present().borrow().len() >= 3, "who joins last knows at once who lives");
    assert!(a.present().borrow().iter().all(|member| member.presence == told), "entries say what members tell");
    sleep(2 * TTL).await;
    assert_eq!(a.alive().await.unwrap(), all, "entries are renewed");

    assert!(a.can_know_of(c.incarnation()) && !a.can_know_of(Incarnation(u64::MAX)));
    let roles = |told: &[nigh_engine::PresentMember], name| {
        told.iter().find(|member| member.node == node(name)).unwrap().presence.roles.len()
    };
    b.tell(&Presence::new(NodeNumber(7), "10.0.0.1:9410", []));
    let mut present = a.present();
    timeout(PATIENCE, present.wait_for(|told| roles(told, "b") == 0)).await.unwrap().unwrap();
    assert_eq!(roles(&present.borrow(), "c"), 2);

    c.leave().await.unwrap();
    until(&mut seen, |members| *members == all[..2]).await;
    // Dropped, it is renewed no more, as if its node had died.
    let (gone, before) = (Instant::now(), b.incarnation());
    drop(b);
    until(&mut seen, |members| *members == all[..1]).await;
    assert!(gone.elapsed() >= TTL / 2, "it was given time");
    let again = join("b").await.unwrap();
    assert!(again.incarnation() > before, "a new life has a higher number");
    until(&mut seen, |members| members.contains(&(node("b"), again.incarnation()))).await;

    // A process that does not know the living one is refused.
    let refused = join("a").await.unwrap_err().to_string();
    assert!(refused.contains("another node named a is a living member"), "{refused}");
    conforms(&a).await;
    // Another process takes the name: the first life is over, and knows it.
    let mut own = a.watch();
    let other = after("a", Some(a.incarnation())).await.unwrap();
    assert!(other.incarnation() > a.incarnation());
    until(&mut own, |members| !members.contains(&(node("a"), a.incarnation()))).await;
    conforms(&other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_whose_servers_were_gone_for_long_go_on_and_give_nobody_up() {
    let Some(mut servers) = Servers::start("members_whose_servers_were_gone_for_long_go_on_and_give_nobody_up", 3)
    else {
        return;
    };
    let clock = Arc::new(SystemClock::new());
    let told = presence();
    let a = NatsMembership::join(servers.connect(3).await, node("a"), None, &told, clock.clone()).await.unwrap();
    let b = NatsMembership::join(servers.connect(3).await, node("b"), None, &told, clock).await.unwrap();
    let both = vec![(node("a"), a.incarnation()), (node("b"), b.incarnation())];
    let mut seen = a.watch();
    until(&mut seen, |members| *members == both).await;
    servers.kill(1);
    servers.kill(2);
    sleep(2 * TTL).await;
    assert_eq!(a.alive().await.unwrap(), both, "who hears of nobody gives nobody up");
    servers.run(1);
    servers.run(2);
    // Long enough for every entry to be gone, and made anew.
    sleep(4 * TTL).await;
    assert_eq!((a.alive().await.unwrap(), b.alive().await.unwrap()), (both.clone(), both.clone()));
    drop(b);
    until(&mut seen, |members| *members == both[..1]).await;
}
