//! Whether the NATS servers confirm this node's writes.
//!
//! A node renews its membership every second. So while a majority of the servers works, one of them confirms a write of
//! each node about as often.

use nigh_engine::nats::{LinkState, TTL};
use nigh_terms::Timestamp;

use super::ClusterEngine;
use crate::status::ServersStatus;

impl ClusterEngine {
    /// The connection to the servers. They count as silent when no renewal of the membership was confirmed for so long
    /// that the membership expires.
    pub(super) fn servers_status(&self) -> ServersStatus {
        let LinkState { server, unconfirmed } = self.servers.link_state();
        let since = || Timestamp(self.clock.wall().millis().saturating_sub(unconfirmed.as_millis() as u64)).rfc3339();
        ServersStatus {
            configured: self.servers.settings().servers.len(),
            connected: server,
            silent_since: (unconfirmed > TTL).then(since),
        }
    }
}
