//! A node's gate: when a dispatched invocation may begin, what it has seen, and when its end may be reported.
//!
//! A dispatch waits, bounded, until the node's cache covers its token. What an invocation reads and writes joins the
//! invocation's token, and its end carries that token; an end waits until the outcome of each put is known. The gate
//! runs nothing and moves no bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{Monotonic, ShardId, Token, invariant};
use serde::{Deserialize, Serialize};

use super::cache::{CacheOutput, NodeCache, PutFailure};
use super::copies::CopyStore;
use super::frontier::Dispatch;
use super::message::{ObjectName, Stamp};
use super::rules::{Contract, Rule, Rules};

/// The limits of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateLimits {
    /// A dispatch is refused if the node does not cover it after this time.
    pub wait: Duration,
    /// The most waiting dispatches; further ones are refused.
    pub waiting_max: usize,
}

impl Default for GateLimits {
    fn default() -> Self {
        Self { wait: Duration::from_secs(2), waiting_max: 4096 }
    }
}

/// Why a dispatch does not begin here. No byte of it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error, Serialize, Deserialize)]
pub enum GateRefusal {
    /// The dispatch names another incarnation of the node.
    #[error("the dispatch names another incarnation of this node; it must be dispatched anew")]
    OtherIncarnation,
    /// The node does not cover the token of the dispatch in time.
    #[error("the node could not catch up with what the dispatch has seen; dispatch it to another node")]
    NotCovered,
    /// Too many dispatches wait.
    #[error("too many dispatches wait at this node; dispatch it to another node")]
    Crowded,
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GateOutput<I> {
    /// The invocation may begin.
    Admitted(I),
    /// The invocation may not begin.
    Refused(I, GateRefusal),
    /// The invocation has ended: report that to the scheduler, with the token of all that it has seen.
    Ended(I, Token),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WaitingDispatch {
    token: Token,
    until: Monotonic,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct RunningInvocation {
    token: Token,
    /// Number of puts whose outcome is not known.
    puts: u32,
    ending: bool,
}

/// The gate of one incarnation of a node. `I` names invocations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gate<I, R = Contract> {
    rules: R,
    limits: GateLimits,
    waiting: BTreeMap<I, WaitingDispatch>,
    running: BTreeMap<I, RunningInvocation>,
}

impl<I: Copy + Ord, R: Rules> Gate<I, R> {
    /// A gate without waiting dispatches.
    #[must_use]
    pub const fn new(limits: GateLimits, rules: R) -> Self {
        Self { rules, limits, waiting: BTreeMap::new(), running: BTreeMap::new() }
    }

    /// A dispatch has arrived. `sent` receives the requests by which `cache` asks for missing coverage.
    pub fn dispatch<O: ObjectName, V: Clone, S: CopyStore<O, V>>(
        &mut self,
        now: Monotonic,
        invocation: I,
        dispatch: Dispatch,
        cache: &mut NodeCache<O, V, R, S>,
        sent: &mut Vec<CacheOutput<O, V>>,
        out: &mut Vec<GateOutput<I>>,
    ) {
        let Dispatch { to, token } = dispatch;
        let other = to != cache.member() && self.rules.hold(Rule::NamedIncarnation);
        if other || cache.is_given_up() {
            out.push(GateOutput::Refused(invocation, GateRefusal::OtherIncarnation));
        } else if cache.covers(&token) || !self.rules.hold(Rule::Gate) {
            self.admit(invocation, token, out);
        } else if self.waiting.len() >= self.limits.waiting_max {
            out.push(GateOutput::Refused(invocation, GateRefusal::Crowded));
        } else {
            cache.ask(now, &token, sent);
            self.waiting.insert(invocation, WaitingDispatch { token, until: now.after(self.limits.wait) });
        }
    }

    /// Called when the cache covers more, or time has passed. Covered dispatches begin; those that waited too long are
    /// refused.
    pub fn look<O: ObjectName, V: Clone, S: CopyStore<O, V>>(
        &mut self,
        now: Monotonic,
        cache: &mut NodeCache<O, V, R, S>,
        sent: &mut Vec<CacheOutput<O, V>>,
        out: &mut Vec<GateOutput<I>>,
    ) {
        let given_up = cache.is_given_up();
        let ready: Vec<I> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| given_up || now >= waiting.until || cache.covers(&waiting.token))
            .map(|(invocation, _)| *invocation)
            .collect();
        for invocation in ready {
            let Some(WaitingDispatch { token, .. }) = self.waiting.remove(&invocation) else { continue };
            if given_up {
                out.push(GateOutput::Refused(invocation, GateRefusal::OtherIncarnation));
            } else if cache.covers(&token) {
                self.admit(invocation, token, out);
            } else {
                out.push(GateOutput::Refused(invocation, GateRefusal::NotCovered));
            }
        }
        for waiting in self.waiting.values() {
            cache.ask(now, &waiting.token, sent);
        }
    }

    fn admit(&mut self, invocation: I, token: Token, out: &mut Vec<GateOutput<I>>) {
        // A put of an earlier attempt may be under way: this attempt's end waits for its outcome too.
        let running = self.running.entry(invocation).or_default();
        running.ending = false;
        running.token.join(&token);
        out.push(GateOutput::Admitted(invocation));
    }

    /// What a running invocation has seen. Its next put, and a child that it calls, carry this token.
    #[must_use]
    pub fn token(&self, invocation: I) -> Option<&Token> {
        self.running.get(&invocation).map(|running| &running.token)
    }

    /// An invocation has been shown a version.
    pub fn has_read(&mut self, invocation: I, shard: ShardId, stamp: &Stamp) {
        let Some(running) = self.running.get_mut(&invocation) else { return };
        if !self.rules.hold(Rule::EndsCarryReads) {
            return;
        }
        if self.rules.hold(Rule::OwnNumber) {
            stamp.join_into(shard, &mut running.token);
        } else if let Some(others) = &stamp.others {
            running.token.join(others);
        }
    }

    /// An invocation begins a put or a delete.
    pub fn begins_put(&mut self, invocation: I) {
        if let Some(running) = self.running.get_mut(&invocation) {
            running.puts += 1;
        }
    }

    /// A put of an invocation has ended.
    pub fn has_put(
        &mut self,
        invocation: I,
        shard: ShardId,
        outcome: Result<&Stamp, PutFailure>,
        out: &mut Vec<GateOutput<I>>,
    ) {
        let Some(running) = self.running.get_mut(&invocation) else { return };
        // An end waits for `puts`: if the number were too low, the end would be reported before a write is decided.
        invariant!(
            running.puts > 0,
            "a put of an invocation ended, and none was begun; it is ending: {}",
            running.ending
        );
        running.puts -= 1;
        match outcome {
            Ok(stamp) => stamp.join_into(shard, &mut running.token),
            Err(PutFailure::GivenUp { through }) => running.token.see(shard, through),
            Err(PutFailure::NotTaken) => {}
        }
        self.end_if_settled(invocation, out);
    }

    /// The invocation has answered, failed, run out of time or been killed. Its end is reported when each of its puts
    /// is acknowledged or can no longer take place.
    pub fn ends(&mut self, invocation: I, out: &mut Vec<GateOutput<I>>) {
        if let Some(running) = self.running.get_mut(&invocation) {
            running.ending = true;
            self.end_if_settled(invocation, out);
        }
    }

    fn end_if_settled(&mut self, invocation: I, out: &mut Vec<GateOutput<I>>) {
        let settled =
            |running: &RunningInvocation| running.ending && (running.puts == 0 || !self.rules.hold(Rule::FateOfPuts));
        if self.running.get(&invocation).is_some_and(settled)
            && let Some(running) = self.running.remove(&invocation)
        {
            out.push(GateOutput::Ended(invocation, running.token));
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Incarnation, Sequence, Version};

    use super::*;
    use crate::{CacheLimits, Counter, Cover, FromHome, Member, NodeNumber, Reply, ToHome};

    const SHARD: ShardId = ShardId(0);
    const NOW: Monotonic = Monotonic(0);
    const ME: Member = Member { node: NodeNumber(1), incarnation: Incarnation(2) };
    const SEEN: Version = Version { epoch: Epoch(1), sequence: Sequence(3) };

    type Cache = NodeCache<&'static str, ()>;

    struct Node {
        gate: Gate<u8>,
        cache: Cache,
        sent: Vec<CacheOutput<&'static str, ()>>,
    }

    fn node() -> Node {
        let mut cache = Cache::new(ME, CacheLimits::default(), Contract);
        cache.meet(NOW, SHARD, Epoch(1), &mut Vec::new());
        Node {
            gate: Gate::new(GateLimits { waiting_max: 1, ..GateLimits::default() }, Contract),
            cache,
            sent: Vec::new(),
        }
    }

    impl Node {
        fn dispatch(&mut self, invocation: u8, to: Member) -> Vec<GateOutput<u8>> {
            let mut token = Token::empty();
            token.see(SHARD, SEEN);
            let mut out = Vec::new();
            let dispatch = Dispatch { to, token };
            self.gate.dispatch(NOW, invocation, dispatch, &mut self.cache, &mut self.sent, &mut out);
            out
        }

        fn cover(&mut self) {
            let body = FromHome::Covers { cover: Cover { counter: Counter(0), through: SEEN } };
            let reply = Reply { shard: SHARD, epoch: Epoch(1), to: ME, body };
            self.cache.receive(NOW, reply, None, &mut self.sent);
        }

        fn look(&mut self, now: Monotonic) -> Vec<GateOutput<u8>> {
            let mut out = Vec::new();
            self.gate.look(now, &mut self.cache, &mut self.sent, &mut out);
            out
        }
    }

    #[test]
    fn a_dispatch_begins_when_the_node_covers_its_token() {
        let mut node = node();
        assert_eq!(node.dispatch(1, ME), []);
        assert!(matches!(&node.sent[..], [CacheOutput::Send(SHARD, ask)] if ask.body == ToHome::Ask { need: SEEN }));
        assert_eq!(node.look(NOW), []);
        node.cover();
        assert_eq!(node.look(NOW), [GateOutput::Admitted(1)]);
        assert_eq!(node.dispatch(2, ME), [GateOutput::Admitted(2)], "covered is covered");
    }

    #[test]
    fn a_dispatch_is_refused_by_another_incarnation_by_a_crowd_and_after_its_wait() {
        let mut node = node();
        let old = Member { incarnation: Incarnation(1), ..ME };
        assert_eq!(node.dispatch(1, old), [GateOutput::Refused(1, GateRefusal::OtherIncarnation)]);
        node.dispatch(2, ME);
        assert_eq!(node.dispatch(3, ME), [GateOutput::Refused(3, GateRefusal::Crowded)]);
        let late = NOW.after(GateLimits::default().wait);
        assert_eq!(node.look(late), [GateOutput::Refused(2, GateRefusal::NotCovered)]);
    }

    #[test]
    fn an_end_carries_all_that_was_seen_and_waits_for_the_fate_of_each_put() {
        let mut node = node();
        node.cover();
        node.dispatch(1, ME);
        let version = |sequence| Version { epoch: Epoch(1), sequence: Sequence(sequence) };
        let stamp = |sequence| Stamp { version: version(sequence), others: None };
        node.gate.has_read(1, SHARD, &stamp(4));
        for _ in 0..3 {
            node.gate.begins_put(1);
        }
        let mut out = Vec::new();
        node.gate.ends(1, &mut out);
        node.gate.has_put(1, SHARD, Ok(&stamp(6)), &mut out);
        node.gate.has_put(1, SHARD, Err(PutFailure::NotTaken), &mut out);
        assert_eq!(out, [], "one put may still take place");
        node.gate.has_put(1, SHARD, Err(PutFailure::GivenUp { through: version(9) }), &mut out);
        let mut token = Token::empty();
        token.see(SHARD, version(9));
        assert_eq!(out, [GateOutput::Ended(1, token)]);
        assert_eq!(node.gate.token(1), None);
    }

    #[test]
    fn another_attempt_waits_for_the_fate_of_the_firsts_puts_too() {
        let mut node = node();
        node.cover();
        node.dispatch(1, ME);
        node.gate.begins_put(1);
        let mut out = Vec::new();
        node.gate.ends(1, &mut out);
        assert_eq!(node.dispatch(1, ME), [GateOutput::Admitted(1)]);
        let version = Version { epoch: Epoch(1), sequence: Sequence(9) };
        node.gate.has_put(1, SHARD, Ok(&Stamp { version, others: None }), &mut out);
        assert_eq!(out, [], "it runs");
        node.gate.ends(1, &mut out);
        assert!(matches!(&out[..], [GateOutput::Ended(1, token)] if token.get(SHARD) == Some(version)));
    }
}
