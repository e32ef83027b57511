//! The nodes as one home knows them: their incarnations, the invalidations sent to each, and its requests.
//!
//! A peer is one incarnation of a node. It is forgotten when it is declared dead or a later incarnation is met, with
//! all that it has not acknowledged, so nothing ever waits for it. Its puts are recognised in the ledger until nobody
//! can send them again, to the next home either: until a fence is in the ledger, or a later incarnation was met.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nigh_terms::{Incarnation, Monotonic, Version, invariant};

use super::super::message::{Counter, Cover, FromHome, Member, NodeNumber, ObjectName, RequestId, Stamp};
use super::super::rules::{Rule, Rules};
use super::super::sharers::SharerId;

/// The state of a put, for a node that sends it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PutState {
    /// The home has asked the ledger to append it.
    Appending,
    Written(Stamp),
    NotTaken,
}

/// A peer that has acknowledged nothing for so many pauses gets what it owes again.
const SILENCE_OVER_PAUSE: u32 = 4;

/// An invalidation that has not been acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PendingInvalidation<O> {
    object: O,
    version: Version,
    recall: bool,
}

/// One incarnation of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer<O> {
    incarnation: Incarnation,
    pub(super) sharer: SharerId,
    sent: Counter,
    /// The last invalidations of `sent` that the peer has not acknowledged.
    owed: VecDeque<PendingInvalidation<O>>,
    owed_since: Monotonic,
    last_sent: Monotonic,
    /// The peer has the answers to all puts below this one.
    settled: RequestId,
    puts: BTreeMap<RequestId, PutState>,
}

impl<O: ObjectName> Peer<O> {
    /// The invalidations that this peer must have applied to cover `through`.
    pub(super) const fn cover(&self, through: Version) -> Cover {
        Cover { counter: self.sent, through }
    }

    /// Forgets the puts below `settled`, which the peer never sends again, and gives their versions to `forgotten`.
    pub(super) fn settle(&mut self, settled: RequestId, mut forgotten: impl FnMut(Version)) {
        self.settled = self.settled.max(settled);
        while let Some(first) = self.puts.first_entry()
            && *first.key() < self.settled
        {
            if let PutState::Written(stamp) = first.remove() {
                forgotten(stamp.version);
            }
        }
    }

    /// True if every put below this one is answered: no remembered put can be settled before this one.
    pub(super) fn is_first(&self, request: RequestId) -> bool {
        request == self.settled
    }

    /// True if the peer has the answer to this put: the message is an old one.
    pub(super) fn is_settled(&self, request: RequestId) -> bool {
        request < self.settled
    }

    /// The state of a put that is not settled; none if the put is new.
    pub(super) fn known(&self, request: RequestId) -> Option<&PutState> {
        self.puts.get(&request)
    }

    pub(super) fn note(&mut self, request: RequestId, known: PutState) {
        self.puts.insert(request, known);
    }

    /// Forgets a put that no node will send again.
    pub(super) fn forget(&mut self, request: RequestId) {
        self.puts.remove(&request);
    }

    /// The number of remembered puts.
    pub(super) fn puts(&self) -> usize {
        self.puts.len()
    }

    /// Adds an invalidation to those not acknowledged, and makes its message.
    fn owe(&mut self, now: Monotonic, object: O, version: Version, recall: bool) -> FromHome<O> {
        if self.owed.is_empty() {
            self.owed_since = now;
        }
        self.last_sent = now;
        self.sent.0 += 1;
        self.owed.push_back(PendingInvalidation { object: object.clone(), version, recall });
        // The counters of invalidations that are sent again are computed from this: `owed` is the end of `sent`.
        let (sent, owed) = (self.sent.0, self.owed.len());
        invariant!(owed as u64 <= sent, "{owed} invalidations are owed of {sent} that were sent");
        FromHome::Invalidate { counter: self.sent, object, version, recall }
    }

    fn acknowledge(&mut self, now: Monotonic, counter: Counter) {
        while self.sent.0 - (self.owed.len() as u64) < counter.0 && self.owed.pop_front().is_some() {
            self.owed_since = now;
        }
    }

    fn again(&self) -> impl Iterator<Item = FromHome<O>> + '_ {
        let first = self.sent.0 - self.owed.len() as u64 + 1;
        (first..).zip(&self.owed).map(|(counter, PendingInvalidation { object, version, recall })| {
            FromHome::Invalidate {
                counter: Counter(counter),
                object: object.clone(),
                version: *version,
                recall: *recall,
            }
        })
    }
}

/// All peers of a home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peers<O> {
    living: BTreeMap<NodeNumber, Peer<O>>,
    by_sharer: BTreeMap<SharerId, NodeNumber>,
    /// The last incarnation of each node that was declared dead; all earlier ones are dead too.
    refused: BTreeMap<NodeNumber, Incarnation>,
    /// The entries of `refused` with a fence in the ledger: the next home rejects them too.
    fenced: BTreeMap<NodeNumber, Incarnation>,
    /// Writes of incarnations that only this home rejects: the next home may receive them again.
    orphans: BTreeMap<NodeNumber, Vec<(Incarnation, Version)>>,
    /// Writes that nobody sends again, collected for `take_settled`.
    settled: Vec<Version>,
    sharers: u32,
}

impl<O> Default for Peers<O> {
    fn default() -> Self {
        Self {
            living: BTreeMap::new(),
            by_sharer: BTreeMap::new(),
            refused: BTreeMap::new(),
            fenced: BTreeMap::new(),
            orphans: BTreeMap::new(),
            settled: Vec::new(),
            sharers: 0,
        }
    }
}

impl<O: ObjectName> Peers<O> {
    /// The peer of `from`, added if it is new. None if `from` was declared dead.
    pub(super) fn admit(&mut self, from: Member, now: Monotonic, rules: &impl Rules) -> Option<&mut Peer<O>> {
        if rules.hold(Rule::RefuseGivenUp) && self.refused.get(&from.node).is_some_and(|last| from.incarnation <= *last)
        {
            return None;
        }
        let known = self.living.get(&from.node).map(|peer| peer.incarnation);
        if known.is_some_and(|known| from.incarnation < known) {
            return None;
        }
        if known.is_none_or(|known| known < from.incarnation && rules.hold(Rule::NewIncarnation)) {
            self.forget(from.node);
            let sharer = SharerId(self.sharers);
            self.sharers += 1;
            let namesake = self.by_sharer.insert(sharer, from.node);
            // Entries name sharers by `SharerId` only: two peers of one name would get each other's invalidations.
            invariant!(namesake.is_none(), "sharer {sharer:?} names {from:?} and {namesake:?}");
            let peer = Peer {
                incarnation: from.incarnation,
                sharer,
                sent: Counter::default(),
                owed: VecDeque::new(),
                owed_since: now,
                last_sent: now,
                settled: RequestId::default(),
                puts: BTreeMap::new(),
            };
            self.living.insert(from.node, peer);
            // A peer without a sharer name would never get an invalidation; a name without a peer would never be removed.
            let (peers, names) = (self.living.len(), self.by_sharer.len());
            invariant!(peers == names, "{peers} peers have {names} names after {from:?} was met");
            self.free_orphans(from.node);
        }
        self.living.get_mut(&from.node)
    }

    /// The peer of `member`, if it is known.
    pub(super) fn living(&mut self, member: Member) -> Option<&mut Peer<O>> {
        self.living.get_mut(&member.node).filter(|peer| peer.incarnation == member.incarnation)
    }

    /// The peer of `member`, for reading. None if it is unknown.
    pub(super) fn find(&self, member: Member) -> Option<&Peer<O>> {
        self.living.get(&member.node).filter(|peer| peer.incarnation == member.incarnation)
    }

    /// True if `sharer` has not been forgotten.
    pub(super) fn lives(&self, sharer: SharerId) -> bool {
        self.by_sharer.contains_key(&sharer)
    }

    /// Who `sharer` is, if it has not been forgotten.
    pub(super) fn member(&self, sharer: SharerId) -> Option<Member> {
        let node = *self.by_sharer.get(&sharer)?;
        self.living.get(&node).map(|peer| Member { node, incarnation: peer.incarnation })
    }

    /// The message that invalidates the sharer's copy. None if the sharer was forgotten.
    pub(super) fn invalidate(
        &mut self,
        now: Monotonic,
        sharer: SharerId,
        object: &O,
        version: Version,
        recall: bool,
    ) -> Option<(Member, FromHome<O>, usize)> {
        let node = *self.by_sharer.get(&sharer)?;
        let peer = self.living.get_mut(&node)?;
        let member = Member { node, incarnation: peer.incarnation };
        let message = peer.owe(now, object.clone(), version, recall);
        Some((member, message, peer.owed.len()))
    }

    pub(super) fn acknowledge(&mut self, now: Monotonic, from: Member, counter: Counter) {
        if let Some(peer) = self.living(from) {
            peer.acknowledge(now, counter);
        }
    }

    /// Declares `member` and all earlier incarnations dead. True if `member` was not declared dead before.
    pub(super) fn give_up(&mut self, member: Member) -> bool {
        if self.living.get(&member.node).is_some_and(|peer| peer.incarnation <= member.incarnation) {
            self.forget(member.node);
        }
        let last = self.refused.insert(member.node, member.incarnation);
        if let Some(last) = last.filter(|last| *last > member.incarnation) {
            self.refused.insert(member.node, last);
        }
        last.is_none_or(|last| last < member.incarnation)
    }

    /// Records that the ledger has a fence of `member` and all earlier incarnations.
    pub(super) fn fence(&mut self, member: Member) {
        // A durable fence promises that this home accepts nothing more from the member.
        let refused = self.refused.get(&member.node);
        let is_refused = refused.is_some_and(|last| *last >= member.incarnation);
        invariant!(is_refused, "{member:?} is fenced, and its node is refused only up to {refused:?}");
        let last = self.fenced.entry(member.node).or_insert(member.incarnation);
        *last = (*last).max(member.incarnation);
        self.free_orphans(member.node);
    }

    /// Records that an incarnation which this home has forgotten wrote `version`.
    pub(super) fn orphan(&mut self, writer: Member, version: Version) {
        self.orphans.entry(writer.node).or_default().push((writer.incarnation, version));
        self.free_orphans(writer.node);
    }

    /// Takes the writes that nobody sends again, each once.
    pub(super) fn take_settled(&mut self) -> Vec<Version> {
        std::mem::take(&mut self.settled)
    }

    /// A fenced incarnation, or one with a successor, sends nothing again, whoever is the home.
    fn free_orphans(&mut self, node: NodeNumber) {
        let Some(orphans) = self.orphans.get_mut(&node) else { return };
        let (fenced, living) = (self.fenced.get(&node), self.living.get(&node).map(|peer| peer.incarnation));
        let asks = |incarnation: Incarnation| {
            fenced.is_none_or(|fenced| *fenced < incarnation) && living.is_none_or(|living| living <= incarnation)
        };
        let (kept, freed) = std::mem::take(orphans).into_iter().partition(|(incarnation, _)| asks(*incarnation));
        *orphans = kept;
        let freed: Vec<(Incarnation, Version)> = freed;
        self.settled.extend(freed.into_iter().map(|(_, version)| version));
        if orphans.is_empty() {
            self.orphans.remove(&node);
        }
    }

    fn forget(&mut self, node: NodeNumber) {
        let Some(Peer { incarnation, sharer, puts, .. }) = self.living.remove(&node) else { return };
        self.by_sharer.remove(&sharer);
        let member = Member { node, incarnation };
        for put in puts.into_values() {
            if let PutState::Written(stamp) = put {
                self.orphan(member, stamp.version);
            }
        }
    }

    /// The members with an invalidation that was not acknowledged for `patience`.
    pub(super) fn silent(&self, now: Monotonic, patience: Duration) -> Vec<Member> {
        let silent =
            self.living.iter().filter(|(_, peer)| !peer.owed.is_empty() && now.since(peer.owed_since) >= patience);
        silent.map(|(&node, peer)| Member { node, incarnation: peer.incarnation }).collect()
    }

    /// Sends again what was sent `pause` ago and not acknowledged; to a peer that has been silent for longer, more rarely.
    pub(super) fn overdue(&mut self, now: Monotonic, pause: Duration, mut send: impl FnMut(Member, FromHome<O>)) {
        for (&node, peer) in &mut self.living {
            let pause = pause.max(now.since(peer.owed_since) / SILENCE_OVER_PAUSE);
            if !peer.owed.is_empty() && now.since(peer.last_sent) >= pause {
                peer.last_sent = now;
                let member = Member { node, incarnation: peer.incarnation };
                peer.again().for_each(|message| send(member, message));
            }
        }
    }

    /// The members that were sent an invalidation of `object` and have not acknowledged it.
    pub(super) fn pending(&self, object: &O) -> Vec<Member> {
        let owing = self.living.iter().filter(|(_, peer)| peer.owed.iter().any(|owed| owed.object == *object));
        owing.map(|(&node, peer)| Member { node, incarnation: peer.incarnation }).collect()
    }

    /// The number of invalidations that were sent and not acknowledged.
    pub(super) fn owed(&self) -> usize {
        self.living.values().map(|peer| peer.owed.len()).sum()
    }
}
