//! The events that can happen next in a world, and their effects.

use nigh_protocol::{CopyStore as _, Frontier, HomeInput, Member, Rule, Rules as _};
use nigh_terms::ShardId;

use crate::configuration::{Configuration, Origin, Step};
use crate::fingerprint::Part;
use crate::ghost::{OBJECTS_MAX, Object};
use crate::network::Packet;
use crate::world::World;
use crate::world_parts::{Life, Phase};

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The packet with this index arrives.
    Deliver(usize),
    /// The packet with the first index arrives at the former home with the second.
    DeliverToZombie(usize, u8),
    /// The packet with this index is lost.
    Drop(usize),
    /// The packet with this index is doubled.
    Double(usize),
    /// The scheduler sends a program to a node.
    Dispatch(u8, u8),
    /// A client sends a request to a node's door.
    Arrive(u8, u8),
    /// A program takes its next step.
    Step(u8),
    /// A program is killed.
    Kill(u8),
    /// A put from outside is acknowledged.
    Acknowledge(u8),
    /// A node evicts a copy.
    Evict(u8, Object),
    /// A node crashes.
    Crash(u8),
    /// A node that crashed or was declared dead starts a new incarnation.
    Join(u8),
    /// A home declares a node dead that may be alive.
    Suspect(ShardId, u8),
    /// A home is replaced.
    FailOver(ShardId),
    /// The scheduler crashes, or seems to have crashed, and its successor begins.
    CrashScheduler,
    /// The scheduler has announced itself to every node.
    Announce,
    /// The scheduler before sends a program to a node.
    DispatchByFormer(u8, u8),
    /// The scheduler reads a home.
    ReadHome(ShardId),
    /// The scheduler learns that a node is lost.
    Lose(Member),
    /// A home is told to fence a lost node.
    Fence(ShardId, Member),
    /// An object's newest version goes to the store.
    Push(Object),
    /// A home forgets an object.
    Forget(Object),
    /// Dispatches at a node's gate have waited too long.
    TimeOut(u8),
    /// A node asks again for what is outstanding.
    TickNode(u8),
    /// A home sends again what was not acknowledged.
    TickHome(ShardId),
}

impl Event {
    /// True if it is neither a fault nor new work: a world must be able to finish with such events.
    #[must_use]
    pub const fn finishes(&self) -> bool {
        matches!(
            self,
            Self::Deliver(_)
                | Self::DeliverToZombie(..)
                | Self::Step(_)
                | Self::Acknowledge(_)
                | Self::Announce
                | Self::ReadHome(_)
                | Self::Lose(_)
                | Self::Fence(..)
                | Self::TickNode(_)
                | Self::TickHome(_)
        )
    }
}

impl World {
    /// The event in words: it names the packet that arrives, not only its index.
    #[must_use]
    pub fn describe(&self, event: Event) -> String {
        match event {
            Event::Deliver(at) | Event::DeliverToZombie(at, _) | Event::Drop(at) | Event::Double(at) => {
                format!("{event:?}: {:?}", self.network.packets().get(at))
            }
            other => format!("{other:?}"),
        }
    }

    /// All events that can happen next.
    pub(crate) fn events(&self, config: &Configuration, events: &mut Vec<Event>) {
        if self.broken.is_some() {
            return;
        }
        self.network_events(events);
        self.program_events(config, events);
        self.node_events(config, events);
        self.home_events(config, events);
        self.scheduler_events(events);
    }

    fn network_events(&self, events: &mut Vec<Event>) {
        let packets = self.network.packets();
        for (at, packet) in packets.iter().enumerate() {
            if (at > 0 && *packets[at - 1] == **packet) || !self.network.may_arrive(at) {
                continue;
            }
            if matches!(**packet, Packet::Ended(..) | Packet::Returned(_)) && self.frontier.is_none() {
                continue;
            }
            events.push(Event::Deliver(at));
            if let Packet::ToHome(shard, ..) = &**packet {
                let zombies = self.seats[usize::from(shard.0)].zombies.len() as u8;
                events.extend((0..zombies).map(|zombie| Event::DeliverToZombie(at, zombie)));
            }
            if packet.is_message() {
                if self.left.drops > 0 {
                    events.push(Event::Drop(at));
                }
                if self.left.doubles > 0 {
                    events.push(Event::Double(at));
                }
            }
        }
    }

    fn program_events(&self, config: &Configuration, events: &mut Vec<Event>) {
        for (program, (invocation, text)) in (0u8..).zip(self.invocations.iter().zip(&config.programs)) {
            let nodes = (0..config.nodes)
                .filter(|node| text.nodes & (1 << node) != 0 && self.nodes[usize::from(*node)].life.is_some());
            match invocation.phase {
                Phase::Idle if invocation.ended => {}
                Phase::Idle if text.origin == Origin::Outside => {
                    events.extend(nodes.map(|node| Event::Arrive(program, node)));
                }
                Phase::Idle => {
                    let begun = match text.origin {
                        Origin::After(before) => self.invocations[usize::from(before)].ended,
                        Origin::Client | Origin::Called | Origin::Outside => true,
                    };
                    let ready = self.frontier.as_ref().is_some_and(|frontier| frontier.unread().next().is_none());
                    if begun && self.may_former_dispatch() {
                        events.extend(nodes.clone().map(|node| Event::DispatchByFormer(program, node)));
                    }
                    if begun && ready {
                        events.extend(nodes.map(|node| Event::Dispatch(program, node)));
                    }
                }
                Phase::Running(me) if self.life(me).is_some() => {
                    let calls = matches!(text.steps.get(usize::from(invocation.at)), Some(Step::Call(_)));
                    if invocation.waits.is_none() && !(calls && self.frontier.is_none()) {
                        events.push(Event::Step(program));
                    }
                    if self.left.kills > 0 && text.origin != Origin::Outside {
                        events.push(Event::Kill(program));
                    }
                }
                Phase::Unacknowledged if self.may_take_tokens(config) => events.push(Event::Acknowledge(program)),
                Phase::Unborn
                | Phase::Sent(_)
                | Phase::Running(_)
                | Phase::Leaving(_)
                | Phase::Unacknowledged
                | Phase::Over => {}
            }
        }
    }

    fn node_events(&self, config: &Configuration, events: &mut Vec<Event>) {
        for (number, node) in (0u8..).zip(&self.nodes) {
            let Some(life) = &node.life else {
                if config.restarts {
                    events.push(Event::Join(number));
                }
                continue;
            };
            if life.cache.is_given_up() {
                events.push(Event::Join(number));
            }
            if self.left.evictions > 0 {
                let copies = (0..OBJECTS_MAX as u8).filter(|object| life.cache.copies().version(object).is_some());
                events.extend(copies.map(|object| Event::Evict(number, object)));
            }
            if self.left.node_crashes > 0 {
                events.push(Event::Crash(number));
            }
            if self.left.timeouts > 0 {
                events.push(Event::TimeOut(number));
            }
            if self.disturbed && (config.impatient || !self.is_busy(|packet| packet.is_of(node.me))) {
                events.push(Event::TickNode(number));
            }
        }
    }

    fn is_busy(&self, on_its_way: impl Fn(&Packet) -> bool) -> bool {
        self.network.packets().iter().any(|packet| on_its_way(packet))
    }

    fn home_events(&self, config: &Configuration, events: &mut Vec<Event>) {
        for shard in (0..u16::from(config.homes)).map(ShardId) {
            if self.left.failovers > 0 {
                events.push(Event::FailOver(shard));
            }
            if self.left.suspicions > 0 {
                let living = (0u8..).zip(&self.nodes).filter(|(_, node)| node.life.is_some());
                events.extend(living.map(|(node, _)| Event::Suspect(shard, node)));
            }
            if self.disturbed && (config.impatient || !self.is_busy(Packet::is_of_invalidation)) {
                events.push(Event::TickHome(shard));
            }
        }
        if config.pushes {
            for object in 0..OBJECTS_MAX as u8 {
                if self.unpushed(config, object).is_some() {
                    events.push(Event::Push(object));
                } else if self.left.forgets > 0 {
                    events.push(Event::Forget(object));
                }
            }
        }
    }

    fn scheduler_events(&self, events: &mut Vec<Event>) {
        if self.left.scheduler_crashes > 0 {
            events.push(Event::CrashScheduler);
        }
        let Some(frontier) = &self.frontier else { return };
        match self.former {
            Some(_) => events.push(Event::Announce),
            None => events.extend(frontier.unread().map(Event::ReadHome)),
        }
        let mut at: Vec<Member> = Vec::new();
        for invocation in self.invocations.iter().filter(|invocation| !invocation.ended) {
            let (Phase::Sent(member) | Phase::Running(member) | Phase::Leaving(member)) = invocation.phase else {
                continue;
            };
            let lost = self.life(member).is_none() || self.suspected.contains(&member);
            if lost && !at.contains(&member) {
                at.push(member);
            }
        }
        for member in at {
            let mut unfenced = frontier.unfenced(member).peekable();
            if unfenced.peek().is_none() {
                events.push(Event::Lose(member));
            }
            events.extend(unfenced.map(|shard| Event::Fence(shard, member)));
        }
    }

    /// Applies `event`.
    pub(crate) fn happen(&mut self, config: &Configuration, event: Event) {
        match event {
            Event::Deliver(at) => self.deliver(config, at, None),
            Event::DeliverToZombie(at, zombie) => self.deliver(config, at, Some(zombie)),
            Event::Drop(at) => {
                self.left.drops -= 1;
                self.disturbed = true;
                self.network.take(at);
            }
            Event::Double(at) => {
                self.left.doubles -= 1;
                self.network.double(at);
            }
            Event::Dispatch(program, node) => self.dispatch(config, program, node, false),
            Event::DispatchByFormer(program, node) => self.dispatch(config, program, node, true),
            Event::Announce => self.former = None,
            Event::Arrive(program, node) => {
                let me = self.nodes[usize::from(node)].me;
                let invocation = &mut self.invocations[usize::from(program)];
                invocation.phase = Phase::Running(me);
                // A client outside carries no token, so it must see only what was acknowledged.
                invocation.seen.ended = self.ghost.ended.ended;
                self.step(config, program);
            }
            Event::Step(program) => self.step(config, program),
            Event::Kill(program) => {
                self.left.kills -= 1;
                if let Phase::Running(me) = self.invocations[usize::from(program)].phase {
                    self.invocations[usize::from(program)].phase = Phase::Leaving(me);
                    self.with_gate(config, me.node.0 as u8, |gate, _, _, told| gate.ends(program, told));
                }
            }
            Event::Acknowledge(program) => self.acknowledge(config, program),
            Event::Evict(node, object) => {
                self.left.evictions -= 1;
                if let Some(life) = self.life_mut(node) {
                    life.cache.copies_mut().remove(&object);
                }
            }
            Event::Crash(node) => {
                self.left.node_crashes -= 1;
                self.disturbed = true;
                let dead = &mut self.nodes[usize::from(node)];
                dead.life = None;
                let me = dead.me;
                self.network.lose(|packet| matches!(packet, Packet::ToNode(reply, _) if reply.to == me));
            }
            Event::Join(node) => {
                let joining = &mut self.nodes[usize::from(node)];
                let before = joining.me;
                joining.me.incarnation = joining.me.incarnation.next();
                joining.life = Some(Life::begin(config, joining.me));
                self.network.lose(|packet| matches!(packet, Packet::ToNode(reply, _) if reply.to == before));
            }
            Event::Suspect(shard, node) => {
                self.left.suspicions -= 1;
                self.disturbed = true;
                let me = self.nodes[usize::from(node)].me;
                let epoch = self.seats[usize::from(shard.0)].home.epoch();
                self.run_home(config, shard, epoch, HomeInput::GiveUp(me), None);
                self.suspect(me);
            }
            Event::FailOver(shard) => {
                self.left.failovers -= 1;
                self.fail_over(config, shard);
            }
            Event::CrashScheduler => {
                self.left.scheduler_crashes -= 1;
                self.keep_former(config);
                let homes = (0u16..).map(ShardId).zip(self.ledgers.iter().map(|ledger| ledger.epoch));
                self.frontier = Some(Part::new(Frontier::begin(homes, config.without)));
            }
            Event::ReadHome(shard) => {
                let newest = self.seats[usize::from(shard.0)].home.newest();
                if let Some(frontier) = &mut self.frontier {
                    frontier.read(shard, newest);
                }
            }
            Event::Lose(member) => {
                if let Some(frontier) = &mut self.frontier {
                    frontier.lose(member, (0..u16::from(config.homes)).map(ShardId));
                }
            }
            Event::Fence(shard, member) if !config.without.hold(Rule::FenceBeforeDeclare) => {
                let newest = self.seats[usize::from(shard.0)].home.newest();
                self.fenced(member, shard, newest);
            }
            Event::Fence(shard, member) => {
                let epoch = self.seats[usize::from(shard.0)].home.epoch();
                self.run_home(config, shard, epoch, HomeInput::Fence(member), None);
            }
            Event::Push(object) => self.push(config, object),
            Event::Forget(object) => {
                self.left.forgets -= 1;
                let shard = ShardId(u16::from(object % config.homes));
                let epoch = self.seats[usize::from(shard.0)].home.epoch();
                self.run_home(config, shard, epoch, HomeInput::Forget(object), None);
            }
            Event::TimeOut(node) => {
                self.left.timeouts -= 1;
                self.time_out(config, node);
            }
            Event::TickNode(node) => self.tick_node(config, node),
            Event::TickHome(shard) => {
                let epoch = self.seats[usize::from(shard.0)].home.epoch();
                self.run_home(config, shard, epoch, HomeInput::Tick, None);
            }
        }
    }

    /// True if nothing that a live node has begun is unfinished.
    pub(crate) fn is_finished(&self) -> bool {
        self.broken.is_some()
            || self.invocations.iter().all(|invocation| match invocation.phase {
                Phase::Unborn | Phase::Idle | Phase::Over => true,
                Phase::Running(me) if self.life(me).is_none() => true,
                Phase::Sent(_) | Phase::Running(_) | Phase::Leaving(_) | Phase::Unacknowledged => invocation.ended,
            })
    }

    /// True if no put of a live node is unanswered.
    pub(crate) fn is_written(&self) -> bool {
        self.broken.is_some()
            || self.nodes.iter().filter_map(|node| node.life.as_deref()).all(|life| life.writers.is_empty())
    }
}
