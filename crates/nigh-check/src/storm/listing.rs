//! Listings at a node: each home reports its objects, and the node shows the listing when it covers the reports.

use std::collections::BTreeMap;

use nigh_protocol::{Member, Stamp};
use nigh_terms::{Epoch, Sequence, ShardId, Token, Version};

use super::node::{Cache, CacheOutputs, ChildAnswer, Listing, host};
use super::packet::{HomeProcess, ListId, ListPart, Packet, Requester};
use super::world::Storm;
use crate::ghost::Object;

/// True if the node knows an epoch of `shard` above `epoch`.
fn has_met_more(cache: &Cache, shard: ShardId, epoch: Epoch) -> bool {
    let mut next = Token::empty();
    next.see(shard, Version { epoch: epoch.next(), sequence: Sequence(0) });
    cache.covers(&next)
}

impl Storm {
    pub(super) fn begin_list(&mut self, me: Member, who: Requester, namespace: u8) {
        let list = ListId(self.next_ticket().0 as u32);
        if let Some(life) = self.life_mut(me) {
            life.listings.insert(list, Listing { who, namespace, parts: BTreeMap::new() });
        }
        self.ask_parts(me, list);
    }

    /// Asks the homes that have not reported.
    fn ask_parts(&mut self, me: Member, list: ListId) {
        let Some(listing) = self.life(me).and_then(|life| life.listings.get(&list)) else { return };
        let namespace = listing.namespace;
        let missing: Vec<ShardId> =
            (0..self.plan.shards).map(ShardId).filter(|shard| !listing.parts.contains_key(shard)).collect();
        for shard in missing {
            if let Some(&(at, to)) = self.nodes[me.node.0 as usize].routes.get(&shard) {
                self.send(host(me), to, Packet::AskList { at, from: me, list, namespace });
            }
        }
    }

    pub(super) fn list_again(&mut self, me: Member) {
        let lists: Vec<ListId> = self.life(me).map(|life| life.listings.keys().copied().collect()).unwrap_or_default();
        for list in lists {
            self.ask_parts(me, list);
        }
    }

    /// A home has reported.
    pub(super) fn listed(&mut self, at: HomeProcess, to: Member, list: ListId, part: ListPart) {
        let now = self.clock(host(to));
        let mut out = CacheOutputs::new();
        let Some(life) = self.life_mut(to) else { return };
        if has_met_more(&life.cache, at.shard, at.epoch) {
            return;
        }
        life.cache.meet(now, at.shard, at.epoch, &mut out);
        let Some(listing) = life.listings.get_mut(&list) else { return self.carry_out(to, out) };
        life.cache.ask(now, &part.seen, &mut out);
        listing.parts.insert(at.shard, part);
        self.carry_out(to, out);
        self.look_at_what_waits(to);
    }

    /// Shows the listings and the answers of children that the node covers now.
    pub(super) fn look_at_what_waits(&mut self, me: Member) {
        let (shards, now) = (usize::from(self.plan.shards), self.clock(host(me)));
        let mut out = CacheOutputs::new();
        let Some(life) = self.life_mut(me) else { return };
        let cache = &mut life.cache;
        let complete = |listing: &Listing| listing.parts.len() == shards;
        let covered = |listing: &Listing, cache: &Cache| listing.parts.values().all(|part| cache.covers(&part.seen));
        let mut shown = Vec::new();
        for (list, listing) in life.listings.iter().filter(|(_, listing)| complete(listing)) {
            if covered(listing, cache) {
                shown.push(*list);
            } else {
                listing.parts.values().for_each(|part| cache.ask(now, &part.seen, &mut out));
            }
        }
        let shown: Vec<Listing> = shown.iter().filter_map(|list| life.listings.remove(list)).collect();
        let mut ready = Vec::new();
        let mut at = 0;
        while at < life.answers.len() {
            if cache.covers(&life.answers[at].token) {
                ready.push(life.answers.remove(at));
            } else {
                cache.ask(now, &life.answers[at].token, &mut out);
                at += 1;
            }
        }
        for listing in shown {
            self.show_list(me, &listing);
        }
        for answer in ready {
            self.child_has_answered(me, &answer);
        }
        self.carry_out(me, out);
    }

    fn show_list(&mut self, me: Member, listing: &Listing) {
        self.operations += 1;
        let (Requester::Attempt(author) | Requester::Client(_, author)) = listing.who else { return };
        let runs = matches!(listing.who, Requester::Client(..))
            || self.life(me).is_some_and(|life| life.runs.contains_key(&author));
        if !runs {
            return;
        }
        let is_there = |object: Object| {
            let part = listing.parts.get(&ShardId(self.plan.shard_of(object)));
            part.is_some_and(|part| part.present.contains(&object))
        };
        let objects = self.plan.objects_of(listing.namespace).into_iter();
        let shown: Vec<(Object, bool)> = objects.map(|object| (object, is_there(object))).collect();
        self.observer.listed(author, &shown);
        match listing.who {
            Requester::Attempt(attempt) => {
                if let Some(life) = self.life_mut(me) {
                    for part in listing.parts.values() {
                        join(&mut life.gate, attempt, &part.seen);
                    }
                }
                self.goes_on(me, attempt);
            }
            Requester::Client(client, _) => self.client_done(client),
            Requester::Notice => {}
        }
    }

    fn child_has_answered(&mut self, me: Member, answer: &ChildAnswer) {
        let &ChildAnswer { parent, place, callee, ref token } = answer;
        let Some(life) = self.life_mut(me) else { return };
        if !life.runs.get(&parent).is_some_and(|run| run.waits && run.at == place) {
            return;
        }
        join(&mut life.gate, parent, token);
        if let Some(callee) = callee {
            self.observer.answered(parent, callee);
        }
        self.goes_on(me, parent);
    }
}

/// An invocation has seen all of `token`.
fn join<R: nigh_protocol::Rules>(
    gate: &mut nigh_protocol::Gate<super::observer::Author, R>,
    attempt: super::observer::Author,
    token: &Token,
) {
    for (shard, version) in token.iter() {
        gate.has_read(attempt, shard, &Stamp { version, others: None });
    }
}
