//! Machines that are network namespaces: who is cut off reaches nobody, and two that are separated reach all others.

use std::process::Command;

use nigh_node::local_cluster::{NatsServers, Network, Place, find_nats_server};

use crate::skipped::skip;
use crate::support::until;

/// Whether a server at `address` answers on a machine.
fn reaches(namespace: &str, url: &str) -> bool {
    let address = url.trim_start_matches("nats://").replace(':', "/");
    let connect = format!("exec 3<>/dev/tcp/{address} && read -t 1 -u 3 line && [[ $line == INFO* ]]");
    let mut command = Command::new("timeout");
    command.args(["1", "ip", "netns", "exec", namespace, "bash", "-c", &connect]);
    command.output().unwrap().status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_reach_each_other_until_they_are_cut_off_or_separated() {
    let test = "machines_reach_each_other_until_they_are_cut_off_or_separated";
    let (true, Some(program)) = (rustix::process::geteuid().is_root(), find_nats_server()) else {
        skip(test, "it needs root, and nats-server (`make peers`)");
        return;
    };
    let network = match Network::make(3) {
        Ok(network) => network,
        Err(error) => {
            skip(test, format_args!("no network namespaces can be made here: {error}"));
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let places: Vec<Place> = (0..3)
        .map(|at| network.place(at).unwrap())
        .map(|(address, network)| Place { address, network: Some(network) })
        .collect();
    let servers = NatsServers::start(&program, folder.path(), &places).unwrap();
    let urls = servers.urls();
    let namespaces: Vec<String> = places.iter().filter_map(|place| place.network.clone()).collect();
    let sees = |from: usize, to: usize| reaches(&namespaces[from], &urls[to]);
    until("all servers answer", || sees(0, 1) && sees(1, 2) && sees(2, 0)).await;

    network.cut_off(1).unwrap();
    assert!(!sees(0, 1) && !sees(1, 2) && sees(2, 0));
    network.reconnect(1).unwrap();
    until("it is back", || sees(0, 1) && sees(1, 2)).await;

    network.separate(0, 2).unwrap();
    assert!(!sees(0, 2) && !sees(2, 0) && sees(0, 1) && sees(2, 1));
    network.rejoin(0, 2).unwrap();
    until("they see each other again", || sees(0, 2) && sees(2, 0)).await;

    // One way: what the first sends to the third is lost, and with it its answers to the third; nothing else is.
    network.mute(0, 2).unwrap();
    assert!(!sees(0, 2) && !sees(2, 0) && sees(0, 1) && sees(1, 0) && sees(1, 2) && sees(2, 1));
    network.unmute(0, 2).unwrap();
    until("they see each other again", || sees(0, 2) && sees(2, 0)).await;
    drop(servers);
    drop(network);
    until("their network namespaces are gone", || {
        let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        !namespaces.iter().any(|namespace| left.lines().any(|line| line.starts_with(namespace)))
    })
    .await;
}
