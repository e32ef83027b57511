//! A second proof that a node is dead, before its lease ends: its machine refuses connections to the node's address, so no
//! process listens there any more.
//!
//! It is asked for only of a member that has been silent for longer than a renewal may take, and counts only if others have
//! renewed meanwhile (`Roster`). A machine that is stopped or cut off refuses nothing: there the lease decides alone. Like
//! a lease, a refusal decides when shards are taken, and never whether that is safe: homes reject former incarnations by
//! themselves.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use nigh_terms::NodeId;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::roster::SilentMember;

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);
/// The second refusal must come so long after the first: a process that is replaced listens again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The pause before a member that did not refuse is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// The questions under way: one to each silent member.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    asked: BTreeSet<NodeId>,
    tasks: JoinSet<(SilentMember, bool)>,
}

impl Refusals {
    /// Asks those members that are not being asked.
    pub(super) fn ask(&mut self, silent: Vec<SilentMember>) {
        for member in silent {
            if self.asked.insert(member.node.clone()) {
                self.tasks.spawn(async move {
                    let refuses = refuses(&member.address).await;
                    (member, refuses)
                });
            }
        }
    }

    /// The next member that refuses. Waits for ever if none does.
    pub(super) async fn next(&mut self) -> SilentMember {
        loop {
            match self.tasks.join_next().await {
                Some(Ok((member, refuses))) => {
                    self.asked.remove(&member.node);
                    if refuses {
                        return member;
                    }
                }
                // A task that panicked has told that; its member is not asked again, and its lease decides.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// True if the machine at `address` refuses two connections, one a little after the other.
async fn refuses(address: &str) -> bool {
    for pause in [Some(AGAIN_AFTER), None] {
        let connected = timeout(CONNECT_WITHIN, TcpStream::connect(address)).await;
        let is_refused = matches!(connected, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused);
        if !is_refused {
            sleep(PAUSE).await;
            return false;
        }
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn member(name: &str, address: &str) -> SilentMember {
        SilentMember { node: NodeId(name.to_owned()), revision: 1, address: address.to_owned() }
    }

    #[tokio::test]
    async fn an_address_where_nobody_listens_refuses_and_one_whose_process_is_stopped_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stopped = listener.local_addr().unwrap().to_string();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = closed.local_addr().unwrap().to_string();
        drop(closed);
        let mut refusals = Refusals::default();
        refusals.ask(vec![member("stopped", &stopped), member("dead", &dead)]);
        refusals.ask(vec![member("dead", &dead)]);
        assert_eq!(refusals.next().await, member("dead", &dead));
        assert!(
            timeout(Duration::from_secs(1), refusals.next()).await.is_err(),
            "it is asked once, and the other lives"
        );
    }
}
