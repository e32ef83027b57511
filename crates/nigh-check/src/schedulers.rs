//! Two schedulers at a time: one that has begun, and the one before, which does not know that it was followed.
//!
//! The one before dispatches until the new one has announced itself to every node. Nodes take none of its dispatches then.

use nigh_protocol::{Rule, Rules as _};

use crate::configuration::Configuration;
use crate::network::Packet;
use crate::world::World;
use crate::world_parts::Phase;

impl World {
    /// The present scheduler is followed, and may not know.
    pub(crate) fn keep_former(&mut self, config: &Configuration) {
        let before = self.frontier.take();
        if config.former_schedulers {
            // One that had not announced itself has dispatched nothing, so the one before it still does.
            self.former = self.former.take().or(before);
        }
    }

    /// True if the scheduler before may dispatch.
    pub(crate) fn may_former_dispatch(&self) -> bool {
        self.former.as_ref().is_some_and(|former| former.unread().next().is_none())
    }

    /// A scheduler sends a program to a node.
    pub(crate) fn dispatch(&mut self, config: &Configuration, program: u8, node: u8, by_former: bool) {
        let me = self.nodes[usize::from(node)].me;
        let scheduler = if by_former { &self.former } else { &self.frontier };
        let Some(dispatch) = scheduler.as_ref().and_then(|scheduler| scheduler.dispatch(me)) else { return };
        let invocation = &mut self.invocations[usize::from(program)];
        invocation.phase = Phase::Sent(me);
        invocation.seen = self.ghost.ended;
        self.send_far(config, Packet::Dispatch(program, dispatch));
    }

    /// True if the scheduler takes the token of a client's put.
    pub(crate) fn may_take_tokens(&self, config: &Configuration) -> bool {
        let is_announced = self.former.is_none() || !config.without.hold(Rule::AnnounceFirst);
        self.frontier.is_some() && is_announced
    }

    /// True if the scheduler keeps the token of a client's put.
    pub(crate) fn keeps_tokens(&self, config: &Configuration) -> bool {
        let reads = self.frontier.as_ref().is_some_and(|frontier| frontier.unread().next().is_some());
        config.without.hold(Rule::HandOver) && (!reads || config.without.hold(Rule::KeepHandedOver))
    }
}
