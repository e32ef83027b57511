//! The command lines of a local cluster's nodes.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::cluster::{LocalClusterSettings, NAME};
use super::loopback_ports::LoopbackPorts;
use super::nats_servers::Place;

/// The number of shards, a small one: three servers on one disk reserve 256 MiB for each.
const SHARDS: u16 = 8;
/// The ports of nodes with an address of their own.
const PORTS: [u16; 5] = [9400, 9401, 9410, 9402, 9403];
/// The addresses of a node's doors, of its calls, of its health listener and of its admin API, the same after each restart.
pub(super) fn doors(at: &Place, loopback: &mut LoopbackPorts) -> io::Result<[SocketAddr; 5]> {
    let ports = match at.network {
        Some(_) => PORTS.to_vec(),
        None => loopback.keep(PORTS.len())?,
    };
    Ok([0, 1, 2, 3, 4].map(|door| SocketAddr::new(at.address, ports[door])))
}

/// Settings as flags.
pub(super) fn settings_of(set: Vec<String>) -> impl Iterator<Item = String> {
    set.into_iter().flat_map(|one| ["--set".to_owned(), one])
}

/// The command line of a node.
pub(super) fn arguments(
    settings: &LocalClusterSettings,
    name: &str,
    state: &Path,
    certificates: &Path,
    [s3, lambda, calls, health, admin]: [SocketAddr; 5],
    servers: &[String],
) -> Vec<String> {
    let mut set = vec![
        format!("node={name}"),
        format!("s3.listen={s3}"),
        format!("lambda.listen={lambda}"),
        format!("health.listen={health}"),
        format!("admin.listen={admin}"),
        format!("cluster.name={NAME}"),
        format!("cluster.servers={}", servers.join(",")),
        format!("cluster.listen={calls}"),
        format!("cluster.certificates={}", certificates.display()),
        "cluster.roles=run,memory,controller".to_owned(),
        format!("cluster.shards={SHARDS}"),
    ];
    if !calls.ip().is_loopback() {
        set.push("allow_plain=true".to_owned());
    }
    set.extend(settings.set.iter().cloned());
    let state = ["node".to_owned(), "--state".to_owned(), state.display().to_string()];
    state.into_iter().chain(settings_of(set)).collect()
}
