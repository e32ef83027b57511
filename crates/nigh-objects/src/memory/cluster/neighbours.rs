//! The other processes of the cluster: where they are, which shards have their homes there, and calls to them.
//!
//! Addresses and homes are told from outside (the members and the map of homes). They may be late, which is safe: a
//! call to a home that has moved is refused there, and repeated where the home is. A node that has fallen silent
//! refuses nothing: a call to it is abandoned once the node is known to be gone, or its home to be elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use nigh_protocol::{Member, NodeNumber};
use nigh_rpc::{Body, CallAnswer, CallError, Method, PeerAddress, Peers};
use nigh_terms::{Epoch, ShardId};
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::wire::{WireError, decode, encode};

/// How long a call waits for the head of its answer: as long as a write may wait at its home.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(900);

/// Why a home has not answered.
#[derive(Debug)]
pub(super) enum NotAnswered {
    /// The home's address is unknown, the home is not there, or the connection broke: ask again.
    Away(String),
    /// The home has refused.
    Refused(WireError),
}

/// The other processes of the cluster.
pub struct Neighbours {
    peers: Peers,
    addresses: RwLock<HashMap<NodeNumber, PeerAddress>>,
    homes: RwLock<HashMap<ShardId, (NodeNumber, Epoch)>>,
    /// Notified when an address or a home has changed.
    changed: Notify,
}

impl Neighbours {
    /// No other process is known yet.
    #[must_use]
    pub fn new(peers: Peers) -> Self {
        Self { peers, addresses: RwLock::default(), homes: RwLock::default(), changed: Notify::new() }
    }

    /// Sets the address of `node`; none if it has gone.
    pub fn set_address(&self, node: NodeNumber, address: Option<PeerAddress>) {
        let before = match address.clone() {
            Some(address) => self.addresses.write().insert(node, address),
            None => self.addresses.write().remove(&node),
        };
        if before != address {
            self.changed.notify_waiters();
        }
    }

    /// Sets the node of the home of `shard` under `epoch`. False if a home of a later epoch is known: who has taken a shard
    /// and was overtaken hears of the other before its own step is over.
    pub fn set_home(&self, shard: ShardId, node: NodeNumber, epoch: Epoch) -> bool {
        let mut homes = self.homes.write();
        let before = homes.get(&shard).copied();
        if before.is_some_and(|(_, known)| known > epoch) {
            return false;
        }
        homes.insert(shard, (node, epoch));
        drop(homes);
        if before.is_none_or(|(known, _)| known != node) {
            self.changed.notify_waiters();
        }
        true
    }

    /// The node of the home of `shard`, if it is known.
    #[must_use]
    pub fn home_of(&self, shard: ShardId) -> Option<NodeNumber> {
        self.homes.read().get(&shard).map(|(node, _)| *node)
    }

    /// All nodes whose address is known, in the order of their numbers.
    pub(super) fn known(&self) -> Vec<NodeNumber> {
        let mut known: Vec<NodeNumber> = self.addresses.read().keys().copied().collect();
        known.sort_unstable();
        known
    }

    /// True if `peer` is the process of `member`.
    pub(super) fn is(&self, peer: &nigh_rpc::Hello, member: Member) -> bool {
        let addresses = self.addresses.read();
        let named = addresses.get(&member.node).is_some_and(|address| *address.name == *peer.identity.name());
        named && peer.incarnation == member.incarnation.0
    }

    fn address_of(&self, node: NodeNumber) -> Option<PeerAddress> {
        self.addresses.read().get(&node).cloned()
    }

    /// Returns when `holds` is false, which is checked after each change.
    async fn until_not(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if !holds() {
                return;
            }
            changed.await;
        }
    }

    /// Asks `node`. The head of its answer is a `T` or an error.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        node: NodeNumber,
        method: &Method,
        head: &impl Serialize,
        body: Body,
    ) -> Result<(T, nigh_rpc::IncomingBody<'static>), NotAnswered> {
        let away = |why: String| NotAnswered::Away(why);
        let address = self.address_of(node).ok_or_else(|| away(format!("node {} is not known", node.0)))?;
        let head = encode(head).map_err(|why| NotAnswered::Refused(WireError::Failed(why)))?;
        let call = self.peers.call(&address, method, &head, body, Instant::now() + BODY_WITHIN);
        let answer: Result<CallAnswer, CallError> = tokio::select! {
            answer = timeout(ANSWER_WITHIN, call) => {
                answer.map_err(|_| away(format!("{} does not answer", address.name)))?
            }
            () = self.until_not(|| self.address_of(node).as_ref() == Some(&address)) => {
                return Err(away(format!("{} is gone", address.name)));
            }
        };
        let answer = answer.map_err(|error| away(error.to_string()))?;
        match decode::<Result<T, WireError>>(&answer.head).map_err(away)? {
            Ok(given) => Ok((given, answer.body)),
            Err(WireError::Elsewhere) => Err(away("the home is not there".to_owned())),
            Err(error) => Err(NotAnswered::Refused(error)),
        }
    }

    /// Asks the home of `shard`, as `ask` asks a node.
    pub(super) async fn ask_home<T: DeserializeOwned>(
        &self,
        shard: ShardId,
        method: &Method,
        head: &impl Serialize,
        body: Body,
    ) -> Result<(T, nigh_rpc::IncomingBody<'static>), NotAnswered> {
        let node = self.home_of(shard);
        let node = node.ok_or_else(|| NotAnswered::Away(format!("the home of shard {shard} is not known")))?;
        tokio::select! {
            answer = self.ask(node, method, head, body) => answer,
            () = self.until_not(|| self.home_of(shard) == Some(node)) => {
                Err(NotAnswered::Away(format!("the home of shard {shard} has moved")))
            }
        }
    }
}
