//! Which nodes are ready, as balancers and clients see it: by `/health/ready`, and of older programs, which have no such
//! path, by their doors. A balancer stands behind each of two addresses and sends new connections to a node that is ready.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::http_load::Connection;
use crate::instrument::node_under_test::socket_address;
use crate::instrument::tcp_relay::TcpRelay;

/// How often nodes are asked.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// A node that does not answer within this is not ready.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// A node, and the addresses of its doors, which stay.
#[derive(Debug)]
pub(super) struct WatchedNode {
    pub(super) state: PathBuf,
    pub(super) s3: SocketAddr,
    pub(super) lambda: SocketAddr,
    /// An operator has taken it out of the balancers, because its program does not say that it ends.
    pub(super) is_out: AtomicBool,
}

/// Two addresses for clients, each with a balancer for the S3 door and one for the Lambda door.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) s3: TcpRelay,
    pub(super) lambda: TcpRelay,
}

/// What a node's `endpoints.json` says of health; none if there is no such file.
fn endpoints(state: &Path) -> Option<Value> {
    let text = std::fs::read(state.join("endpoints.json")).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether the program of a node has a path for its health.
pub(super) fn says_its_health(state: &Path) -> bool {
    endpoints(state).is_some_and(|endpoints| endpoints["health"].is_string())
}

impl WatchedNode {
    /// Whether the node is ready.
    fn is_ready(&self) -> bool {
        if self.is_out.load(Ordering::Relaxed) {
            return false;
        }
        let Some(endpoints) = endpoints(&self.state) else { return false };
        match endpoints["health"].as_str().map(socket_address) {
            Some(Ok(health)) => {
                let request = format!("GET /health/ready HTTP/1.1\r\nhost: {health}\r\nconnection: close\r\n\r\n");
                let asked = Connection::open_within(health, ANSWERED_WITHIN);
                asked.and_then(|mut connection| connection.fetch(request.as_bytes())).is_ok()
            }
            Some(Err(_)) => false,
            None => [self.s3, self.lambda].iter().all(|door| TcpStream::connect_timeout(door, ANSWERED_WITHIN).is_ok()),
        }
    }
}

/// The node to which a balancer sends new connections: the one of before while it is ready, else the next that is. Pure.
pub(super) fn target(before: usize, ready: &[bool]) -> usize {
    let mut turns = (0..ready.len()).map(|step| (before + step) % ready.len());
    turns.find(|node| ready[*node]).unwrap_or(before)
}

/// Writes which nodes are ready for the clients, and points the balancers, until `stop`.
pub(super) fn follow(
    folder: &Path,
    nodes: &[WatchedNode],
    fronts: &[Front],
    stop: &AtomicBool,
) -> Result<(), LabError> {
    let mut known: Option<Vec<bool>> = None;
    let mut targets: Vec<usize> = (0..fronts.len()).collect();
    while !stop.load(Ordering::Relaxed) {
        // Side by side, as balancers ask: a node that does not answer keeps nobody from hearing of another.
        let ready: Vec<bool> = std::thread::scope(|scope| {
            let asked: Vec<_> = nodes.iter().map(|node| scope.spawn(|| node.is_ready())).collect();
            asked.into_iter().map(|one| one.join().unwrap_or(false)).collect()
        });
        if known.as_ref() != Some(&ready) {
            let (file, fresh) = (folder.join("ready.json"), folder.join("ready.fresh"));
            // Renamed, so that clients read a whole file.
            std::fs::write(&fresh, json!(ready).to_string()).and_then(|()| std::fs::rename(&fresh, &file)).at(&file)?;
            for (front, to) in fronts.iter().zip(&mut targets) {
                *to = target(*to, &ready);
                front.s3.point_at(nodes[*to].s3);
                front.lambda.point_at(nodes[*to].lambda);
            }
            known = Some(ready);
        }
        std::thread::sleep(ASKED_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balancer_stays_with_its_node_while_that_is_ready() {
        assert_eq!(target(1, &[true, true, true]), 1);
        assert_eq!(target(1, &[true, false, true]), 2);
        assert_eq!(target(2, &[true, false, false]), 0);
        assert_eq!(target(1, &[false, false, false]), 1);
    }
}
