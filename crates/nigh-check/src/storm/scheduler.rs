//! The schedulers: one for each namespace at a time. Each dispatches what is ready, learns of ends, and makes the homes
//! fence lost members before it declares anything ended.

use nigh_protocol::{Frontier, Member, Rule};
use nigh_terms::{Epoch, ShardId, Token, Version};

use super::node::host;
use super::observer::{Author, Op};
use super::packet::{Event, HomeProcess, Host, Packet, SCHEDULERS};
use super::work::{Attempt, Outcome};
use super::world::Storm;
use crate::configuration::MutatedRules;

/// The ticks between two repeats of a message.
const TELL_EVERY: u64 = 4;

/// The scheduler of a namespace.
pub(super) struct Scheduler {
    /// The number of earlier schedulers of the namespace.
    pub(super) term: u64,
    pub(super) host: Host,
    pub(super) frontier: Frontier<MutatedRules>,
    ticks: u64,
}

impl Scheduler {
    pub(super) fn begin(
        term: u64,
        host: Host,
        homes: impl IntoIterator<Item = (ShardId, Epoch)>,
        rules: MutatedRules,
    ) -> Self {
        Self { term, host, frontier: Frontier::begin(homes, rules), ticks: 0 }
    }
}

impl Storm {
    fn scheduler(&mut self, namespace: u8) -> &mut Scheduler {
        &mut self.schedulers[usize::from(namespace)]
    }

    /// True if the namespace's scheduler is no longer on this machine.
    pub(super) fn has_moved(&self, at: Host, packet: &Packet) -> bool {
        let is_one = at >= SCHEDULERS && usize::from((at - SCHEDULERS) / 2) < self.schedulers.len();
        let for_one = matches!(
            packet,
            Packet::Returned { .. }
                | Packet::Ended { .. }
                | Packet::Call { .. }
                | Packet::HandOver { .. }
                | Packet::HomeRead { .. }
                | Packet::Fenced { .. }
        );
        for_one && is_one && self.schedulers[usize::from((at - SCHEDULERS) / 2)].host != at
    }

    /// The scheduler crashes; its successor reads every home before it dispatches.
    pub(super) fn succeed_scheduler(&mut self, namespace: u8) {
        let homes = (0u16..).map(ShardId).zip(self.ledgers.iter().map(|ledger| ledger.epoch));
        let homes: Vec<(ShardId, Epoch)> = homes.collect();
        let rules = self.without();
        let Scheduler { term, host, .. } = *self.scheduler(namespace);
        let beside = SCHEDULERS + 2 * namespace + u8::from(host == SCHEDULERS + 2 * namespace);
        *self.scheduler(namespace) = Scheduler::begin(term + 1, beside, homes, rules);
        self.at(self.now, Event::TickScheduler(namespace, term + 1));
    }

    pub(super) fn tick_scheduler(&mut self, namespace: u8) {
        let scheduler = self.scheduler(namespace);
        scheduler.ticks += 1;
        let (tells, from, term) = (scheduler.ticks % TELL_EVERY == 1, scheduler.host, scheduler.term);
        self.lose_what_is_lost(namespace);
        self.dispatch_ready(namespace);
        if !tells {
            return;
        }
        let unread: Vec<ShardId> = self.scheduler(namespace).frontier.unread().collect();
        for shard in unread {
            let (at, to) = self.map[usize::from(shard.0)];
            self.send(from, to, Packet::ReadHome { at, namespace, term });
        }
        for member in self.work.members(namespace) {
            let unfenced: Vec<ShardId> = self.scheduler(namespace).frontier.unfenced(member).collect();
            for shard in unfenced {
                let (at, to) = self.map[usize::from(shard.0)];
                if self.holds(Rule::FenceBeforeDeclare) {
                    self.send(from, to, Packet::Fence { at, member });
                } else if let Some(newest) = self.seat_of(at).map(|seat| seat.home.newest()) {
                    self.fenced(namespace, shard, member, newest);
                }
            }
        }
        for (attempt, to) in self.work.under_way(namespace) {
            let dispatch = self.work.attempts.get(&attempt).map(|attempt| attempt.dispatch.clone());
            if let Some(dispatch) = dispatch {
                self.send(from, host(to), Packet::Dispatch { attempt, dispatch });
            }
        }
    }

    fn lose_what_is_lost(&mut self, namespace: u8) {
        let shards: Vec<ShardId> = (0..self.plan.shards).map(ShardId).collect();
        for member in self.work.members(namespace) {
            if self.lost.contains(&member) {
                self.scheduler(namespace).frontier.lose(member, shards.iter().copied());
            }
        }
    }

    /// Dispatches what is ready, each to a node that is not known to be lost.
    pub(super) fn dispatch_ready(&mut self, namespace: u8) {
        let nodes: Vec<Member> =
            self.nodes.iter().map(|node| node.me).filter(|member| !self.lost.contains(member)).collect();
        let ready = std::mem::take(&mut self.work.ready[usize::from(namespace)]);
        for request in ready {
            let wanted = self.work.requests[request].node;
            let to = match wanted {
                Some(node) => nodes.iter().copied().find(|member| host(*member) == node),
                None => self.chance.pick(&nodes),
            };
            let dispatch = to.and_then(|to| self.schedulers[usize::from(namespace)].frontier.dispatch(to));
            let Some(dispatch) = dispatch else {
                self.work.ready[usize::from(namespace)].push(request);
                continue;
            };
            let attempt = self.observer.author(namespace, false);
            self.work.attempts.insert(attempt, Attempt { request, namespace, dispatch: dispatch.clone(), over: false });
            self.work.outstanding[usize::from(namespace)].insert(attempt);
            let from = self.schedulers[usize::from(namespace)].host;
            self.send(from, host(dispatch.to), Packet::Dispatch { attempt, dispatch });
        }
    }

    /// An attempt was not admitted: nothing of it has run.
    pub(super) fn returned(&mut self, attempt: Author) {
        if let Some((request, namespace)) = self.work.finish_attempt(attempt) {
            self.work.ready[usize::from(namespace)].push(request);
        }
    }

    /// The scheduler learns of an end.
    pub(super) fn end_told(&mut self, attempt: Author, token: &Token) {
        let Some(Attempt { namespace, dispatch, .. }) = self.work.attempts.get(&attempt) else { return };
        let (namespace, to) = (*namespace, dispatch.to);
        // A report of a node that was declared lost is merged, too.
        self.scheduler(namespace).frontier.see(token);
        if let Some((request, _)) = self.work.finish_attempt(attempt) {
            self.observer.ends(attempt, false);
            self.conclude(request, Outcome { callee: Some(attempt), token: token.clone() });
        }
        let from = self.scheduler(namespace).host;
        self.send(from, host(to), Packet::EndHeard { attempt, to });
    }

    /// A request has ended; its waiters continue.
    fn conclude(&mut self, request: usize, outcome: Outcome) {
        self.operations += 1;
        let asked = &mut self.work.requests[request];
        asked.outcome = Some(outcome);
        let (actor, parent) = (asked.actor, asked.parent);
        if let Some(actor) = actor {
            self.client_done(actor);
        }
        if parent.is_some() {
            self.answer_parent(request);
        }
    }

    fn answer_parent(&mut self, request: usize) {
        let asked = &self.work.requests[request];
        let (Some((parent, to, place)), Some(Outcome { callee, token })) = (asked.parent, asked.outcome.clone()) else {
            return;
        };
        let from = self.schedulers[usize::from(asked.namespace)].host;
        self.send(from, host(to), Packet::Answer { parent, to, place, callee, token });
    }

    /// An invocation calls another.
    pub(super) fn called(&mut self, parent: Author, from: Member, place: u32, token: &Token) {
        let namespace = self.work.namespace_of(parent);
        if let Some(&request) = self.work.calls.get(&(parent, place)) {
            if self.work.requests[request].outcome.is_some() {
                self.answer_parent(request);
            }
            return;
        }
        self.scheduler(namespace).frontier.see(token);
        self.observer.calls(parent);
        if let Some(request) = self.work.call(parent, from, place) {
            self.work.ready[usize::from(namespace)].push(request);
            self.dispatch_ready(namespace);
        }
    }

    /// The scheduler receives the token of a put from outside.
    pub(super) fn hand_over(&mut self, at: Host, put: Op, from: Member, namespace: u8, token: &Token) {
        self.scheduler(namespace).frontier.see(token);
        self.send(at, host(from), Packet::HandedOver { put, to: from });
    }

    pub(super) fn read_home(&mut self, at: HomeProcess, namespace: u8, term: u64) {
        let Some(seat) = self.seat_of(at) else { return };
        let (from, newest, to) = (seat.host, seat.home.newest(), self.schedulers[usize::from(namespace)].host);
        self.send(from, to, Packet::HomeRead { namespace, term, shard: at.shard, newest });
    }

    pub(super) fn home_read(&mut self, namespace: u8, term: u64, shard: ShardId, newest: Version) {
        let scheduler = self.scheduler(namespace);
        if scheduler.term == term {
            scheduler.frontier.read(shard, newest);
            self.dispatch_ready(namespace);
        }
    }

    /// A home has fenced a member. When all homes have, the member's attempts are declared ended, and run again if
    /// permitted.
    pub(super) fn fenced(&mut self, namespace: u8, shard: ShardId, member: Member, through: Version) {
        if !self.scheduler(namespace).frontier.fenced(member, shard, through) {
            return;
        }
        let there = self.work.under_way(namespace);
        for (attempt, _) in there.into_iter().filter(|(_, to)| *to == member) {
            self.observer.ends(attempt, true);
            let Some((request, _)) = self.work.finish_attempt(attempt) else { continue };
            if self.work.requests[request].idempotent {
                self.work.ready[usize::from(namespace)].push(request);
            } else {
                let token = self.scheduler(namespace).frontier.token().clone();
                self.conclude(request, Outcome { callee: None, token });
            }
        }
    }
}
