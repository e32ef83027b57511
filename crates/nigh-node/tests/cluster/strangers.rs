//! Who is no member of the cluster, or one that it cannot be: each is refused, and told why.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_engine::nats::TTL;
use nigh_node::cluster::ClusterEngine;
use nigh_rpc::certificates::Authority;
use nigh_rpc::{FORMAT, HEADER_BYTES, Identity, Method, PeerAddress, Role};
use nigh_terms::{Clock, Incarnation, Monotonic, SystemClock, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::support::{Trial, until};

/// What homes ask each other, as a caller of another build has it.
const ASKED: Method = Method { number: 1, name: "newest", head_max: 64 << 10, body_max: 0 };

/// Why a call of one node to another is not answered; empty if it is.
async fn refusal(from: &ClusterEngine, to: &PeerAddress) -> String {
    let deadline = Instant::now() + Duration::from_secs(5);
    let called = from.peers().call(to, &ASKED, b"", Bytes::new(), deadline).await;
    called.err().map(|error| error.to_string()).unwrap_or_default()
}

fn address_of(of: &ClusterEngine, name: &str) -> PeerAddress {
    let (incarnation, status) = (Some(of.own().0.incarnation), of.status());
    let member = status.members.iter().find(|member| member.node == name).unwrap();
    PeerAddress { name: name.into(), address: member.address.as_str().into(), incarnation }
}

/// A node whose certificates are in `folder`.
async fn secured(trial: &Trial, name: &str, folder: &Path) -> ClusterEngine {
    let certificates =
        [("NIGH_CLUSTER__PLAIN", "false".to_owned()), ("NIGH_CLUSTER__CERTIFICATES", folder.display().to_string())];
    trial.join_by(&trial.settings_with(name, &certificates), Arc::new(SystemClock::new())).await
}

fn authority(folder: &Path, names: &[&str]) -> Authority {
    let authority = Authority::create(folder, "trial", 30).unwrap();
    for name in names {
        authority.issue(&Identity::new("trial", Role::Node, name).unwrap(), &[], 30, true).unwrap();
    }
    authority
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_of_another_protocol_is_refused_and_told_which_one_this_is() {
    let test = "a_build_of_another_protocol_is_refused_and_told_which_one_this_is";
    let Some(trial) = Trial::start(test, 1, 4) else { return };
    let node = trial.join("a").await;
    let mut old = [0_u8; HEADER_BYTES];
    old[..4].copy_from_slice(b"NRPC");
    old[4..6].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    old[6] = 1;
    let mut stream = TcpStream::connect(&*address_of(&node, "a").address).await.unwrap();
    stream.write_all(&old).await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    let text = String::from_utf8_lossy(&said[HEADER_BYTES..]).into_owned();
    assert!(text.contains(&format!("format {FORMAT}")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_or_of_the_past_opens_no_call() {
    let test = "a_certificate_of_another_authority_or_of_the_past_opens_no_call";
    let Some(trial) = Trial::start(test, 1, 4) else { return };
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let own = authority(ours.path(), &["a", "b", "late"]);
    authority(others.path(), &["stranger"]);
    let (a, b) = (secured(&trial, "a", ours.path()).await, secured(&trial, "b", ours.path()).await);
    let to_a = address_of(&a, "a");
    // Nobody serves yet: the call came through, and that is said.
    let said = refusal(&b, &to_a).await;
    assert!(said.contains("serves nothing yet"), "{said}");

    // Who knows the servers' token is a member, and nobody's peer.
    let stranger = secured(&trial, "stranger", others.path()).await;
    let said = refusal(&stranger, &to_a).await;
    assert!(said.contains("certificate") && !said.contains("serves nothing"), "{said}");
    let said = refusal(&a, &address_of(&stranger, "stranger")).await;
    assert!(said.contains("certificate") && !said.contains("serves nothing"), "{said}");

    let late = Identity::new("trial", Role::Node, "late").unwrap();
    let long_ago = Timestamp(SystemClock::new().wall().0 - 300 * 24 * 3_600_000).date();
    own.issue_at(&late, &[], long_ago, 1, true).unwrap();
    let late = secured(&trial, "late", ours.path()).await;
    let said = refusal(&late, &to_a).await;
    assert!(said.contains("certificate") && !said.contains("serves nothing"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_of_a_living_node_s_name_is_refused_and_the_first_stays_a_member() {
    let test = "a_second_node_of_a_living_node_s_name_is_refused_and_the_first_stays_a_member";
    let Some(trial) = Trial::start(test, 1, 4) else { return };
    let first = trial.join("twin").await;
    let settings = trial.settings("twin");
    let join =
        || ClusterEngine::join(&settings, settings.cluster.as_ref().unwrap(), None, Arc::new(SystemClock::new()));
    let refused = join().await.map(drop).unwrap_err().to_string();
    for part in ["another node named twin", "127.0.0.1:", "--set node=NAME"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(first.status().members.iter().any(|member| member.incarnation == first.own().0.incarnation));
    // When the first has died, its name is free at the end of its lease.
    drop(first);
    join().await.map(drop).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_of_a_name_ends_the_life_of_the_first_and_nobody_calls_that() {
    let test = "a_second_process_of_a_name_ends_the_life_of_the_first_and_nobody_calls_that";
    let Some(trial) = Trial::start(test, 1, 4) else { return };
    let (first, other) = (trial.join("twin").await, trial.join("other").await);
    let old = address_of(&first, "twin");
    // A copy of its state folder: it takes the first life for its own former one.
    let former = Some(Incarnation(first.own().0.incarnation));
    let second = trial.join_after(&trial.settings("twin"), former, Arc::new(SystemClock::new())).await;
    assert_eq!(first.number(), second.number(), "a name has one number");
    let lives = |seen: &ClusterEngine| -> Vec<u64> {
        seen.status().members.iter().filter(|member| member.node == "twin").map(|member| member.incarnation).collect()
    };
    let now = vec![second.own().0.incarnation];
    until("others know the second life alone", || lives(&other) == now).await;
    until("the first knows that it is over", || !lives(&first).contains(&first.own().0.incarnation)).await;
    sleep(TTL).await;
    assert_eq!(lives(&other), now, "the two do not take turns");
    // Whoever still calls the old life at the new one's address is refused.
    let new = other.address_of(second.number()).unwrap();
    let said = refusal(&other, &PeerAddress { incarnation: old.incarnation, ..new }).await;
    assert!(said.contains("incarnation"), "{said}");
}

/// A machine whose clocks are both an hour ahead.
struct AnHourOff(SystemClock);

const HOUR: Duration = Duration::from_secs(3600);

impl Clock for AnHourOff {
    fn monotonic(&self) -> Monotonic {
        self.0.monotonic().after(HOUR)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.0.wall().0 + HOUR.as_millis() as u64)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_an_hour_off_lives_and_takes_nobody_for_dead() {
    let test = "a_node_whose_clock_is_an_hour_off_lives_and_takes_nobody_for_dead";
    let Some(trial) = Trial::start(test, 1, 4) else { return };
    let right = trial.join("right").await;
    let off = trial.join_by(&trial.settings("off"), Arc::new(AnHourOff(SystemClock::new()))).await;
    let lives = |seen: &ClusterEngine| -> Vec<(String, u64)> {
        seen.status().members.iter().map(|member| (member.node.clone(), member.incarnation)).collect()
    };
    until("both know both", || lives(&right).len() == 2 && lives(&off).len() == 2).await;
    let before = lives(&right);
    let begun = std::time::Instant::now();
    while begun.elapsed() < TTL * 2 {
        assert_eq!((lives(&right), lives(&off)), (before.clone(), before.clone()));
        sleep(Duration::from_millis(50)).await;
    }
}
