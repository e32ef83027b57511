//! What this node tells the other members about itself, and what decides it. One place tells it, so that no change
//! overwrites another.

use std::sync::Arc;

use nigh_engine::nats::NatsMembership;
use nigh_engine::{Availability, NodeRole, Presence};
use parking_lot::Mutex;

/// What decides this node's presence. Pure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Announced {
    /// The node with all its roles and its program.
    pub(in crate::cluster) whole: Presence,
    /// What an operator has set.
    pub(in crate::cluster) availability: Availability,
    /// The format of the cluster.
    pub(in crate::cluster) format: u32,
    /// True while the node may be a home: not before it serves, and not when it leaves.
    pub(in crate::cluster) serves_homes: bool,
    /// True from when the node begins to end.
    pub(in crate::cluster) withdrawn: bool,
}

impl Announced {
    /// A node that starts: no node may release a shard for it before it serves.
    pub(in crate::cluster) const fn starting(whole: Presence, availability: Availability, format: u32) -> Self {
        Self { whole, availability, format, serves_homes: false, withdrawn: false }
    }

    /// The presence that follows.
    pub(in crate::cluster) fn presence(&self) -> Presence {
        let mut presence = self.whole.clone();
        if !self.serves_homes {
            presence.roles.remove(&NodeRole::Memory);
        }
        // A node that ends keeps its homes until it leaves, as a cordoned one does.
        let withdrawn = if self.withdrawn { Availability::Cordoned } else { Availability::Available };
        presence.in_format(self.format).with_availability(self.availability.max(withdrawn))
    }
}

/// Tells the other members.
pub(in crate::cluster) struct Announcer {
    membership: Arc<NatsMembership>,
    announced: Mutex<Announced>,
}

impl Announcer {
    /// The membership has begun with the presence of `announced`.
    pub(in crate::cluster) const fn new(membership: Arc<NatsMembership>, announced: Announced) -> Self {
        Self { membership, announced: Mutex::new(announced) }
    }

    fn change(&self, change: impl FnOnce(&mut Announced)) {
        let mut announced = self.announced.lock();
        let before = announced.presence();
        change(&mut announced);
        let now = announced.presence();
        if now != before {
            self.membership.tell(&now);
        }
    }

    /// Whether this node may be a home from now on.
    pub(in crate::cluster) fn serve_homes(&self, serves: bool) {
        self.change(|announced| announced.serves_homes = serves);
    }

    /// An operator has set this.
    pub(in crate::cluster) fn set_availability(&self, availability: Availability) {
        self.change(|announced| announced.availability = availability);
    }

    /// The format of the cluster, which never goes down.
    pub(in crate::cluster) fn set_format(&self, format: u32) {
        self.change(|announced| announced.format = announced.format.max(format));
    }

    /// This node begins to end.
    pub(in crate::cluster) fn withdraw(&self) {
        self.change(|announced| announced.withdrawn = true);
    }

    /// The format of the cluster.
    pub(in crate::cluster) fn format(&self) -> u32 {
        self.announced.lock().format
    }

    /// What an operator has set.
    pub(in crate::cluster) fn availability(&self) -> Availability {
        self.announced.lock().availability
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::FormatRange;
    use nigh_terms::NodeNumber;

    use super::*;

    fn starting() -> Announced {
        let roles = [NodeRole::Run, NodeRole::Memory, NodeRole::Controller];
        let whole = Presence::new(NodeNumber(3), "h:1", roles).of_program("1.2.3", FormatRange::OWN);
        Announced::starting(whole, Availability::Available, 1)
    }

    #[test]
    fn a_node_is_a_home_only_while_it_serves_and_takes_work() {
        let mut announced = starting();
        let is_home = |announced: &Announced| announced.presence().roles.contains(&NodeRole::Memory);
        assert!(!is_home(&announced) && announced.presence().withheld.is_empty());
        announced.serves_homes = true;
        assert_eq!(announced.presence(), announced.whole);
        announced.availability = Availability::Draining;
        assert!(!is_home(&announced) && announced.presence().withheld.contains(&NodeRole::Memory));
        announced.serves_homes = false;
        assert!(!is_home(&announced) && announced.presence().withheld.is_empty(), "it has left");
    }

    #[test]
    fn a_node_that_ends_tells_it_and_a_drain_stays_a_drain() {
        let mut announced = Announced { serves_homes: true, withdrawn: true, ..starting() };
        assert_eq!(announced.presence().availability, Availability::Cordoned);
        announced.availability = Availability::Draining;
        assert_eq!(announced.presence().availability, Availability::Draining);
        assert_eq!(announced.presence().version, "1.2.3");
    }
}
