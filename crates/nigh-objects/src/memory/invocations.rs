//! Invocations and the protocol: the gate of this node, and the frontier of each namespace.
//!
//! `nigh_protocol::Gate` decides when an invocation begins and has ended, `nigh_protocol::Frontier` which token the
//! namespace's next one begins with. This module only keeps the waiting callers, which calls belong to which
//! invocation, and the limit of remembered frontiers. docs/design/coherence.md, "In a node".

mod write_call;

use std::collections::HashMap;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_data::{ObjectId, ObjectMeta};
use nigh_protocol::{Contract, Dispatch, Frontier, Gate, GateLimits, GateOutput, GateRefusal, Stamp};
use nigh_terms::{InvocationId, Monotonic, Namespace, Principal, ShardId, Token, Version};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

pub(super) use self::write_call::WriteCall;
use super::coherence::Coherence;
use super::{ObjectMemory, ObjectMemoryState};
use crate::stamps::Stamped as _;
use crate::sync::timeout;

/// The most namespaces with a frontier. With one more, all frontiers are forgotten: a new frontier asks the homes,
/// which know everything that any namespace has seen.
pub(super) const FRONTIERS_MAX: usize = 4096;

const LIMITS: GateLimits = GateLimits { wait: Duration::from_secs(2), waiting_max: 4096 };

/// An invocation that waits, runs, or has a put whose outcome is not known. The gate bounds their number.
struct TrackedInvocation {
    namespace: Namespace,
    begins: Option<oneshot::Sender<Result<(), GateRefusal>>>,
    ends: Option<oneshot::Sender<Token>>,
}

/// The gate of this node, its invocations and the frontiers of their namespaces.
pub(super) struct Invocations {
    gate: Gate<InvocationId>,
    known: HashMap<InvocationId, TrackedInvocation>,
    frontiers: HashMap<Namespace, Frontier>,
}

impl Default for Invocations {
    fn default() -> Self {
        Self { gate: Gate::new(LIMITS, Contract), known: HashMap::new(), frontiers: HashMap::new() }
    }
}

impl Invocations {
    fn seen_by(&self, invocation: InvocationId) -> Token {
        self.gate.token(invocation).cloned().unwrap_or_default()
    }

    /// Lets the next dispatch of `namespace` cover `token`. Without a frontier nothing is needed: a new one asks the homes.
    pub(super) fn hand_over(&mut self, namespace: &Namespace, token: &Token) {
        if let Some(frontier) = self.frontiers.get_mut(namespace) {
            frontier.see(token);
        }
    }

    fn ends(&mut self, invocation: InvocationId, ends: Option<oneshot::Sender<Token>>) {
        if let Some(known) = self.known.get_mut(&invocation) {
            known.ends = ends;
        }
        let mut told = Vec::new();
        self.gate.ends(invocation, &mut told);
        self.hear(told);
    }

    /// Handles the outputs of the gate.
    fn hear(&mut self, mut told: Vec<GateOutput<InvocationId>>) {
        while let Some(output) = told.pop() {
            match output {
                GateOutput::Admitted(invocation) => {
                    let begins = self.known.get_mut(&invocation).and_then(|known| known.begins.take());
                    if begins.is_none_or(|begins| begins.send(Ok(())).is_err()) {
                        // The caller has gone, so nothing will run.
                        self.gate.ends(invocation, &mut told);
                    }
                }
                GateOutput::Refused(invocation, refusal) => {
                    let begins = self.known.get_mut(&invocation).and_then(|known| known.begins.take());
                    // A put of an earlier attempt may still be under way.
                    if self.gate.token(invocation).is_none() {
                        self.known.remove(&invocation);
                    }
                    if let Some(begins) = begins {
                        let _nobody_waits = begins.send(Err(refusal));
                    }
                }
                GateOutput::Ended(invocation, token) => {
                    let Some(known) = self.known.remove(&invocation) else { continue };
                    self.hand_over(&known.namespace, &token);
                    if let Some(ends) = known.ends {
                        let _nobody_waits = ends.send(token);
                    }
                }
            }
        }
    }

    /// The number of invocations and of frontiers.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.known.len(), self.frontiers.len())
    }
}

impl Coherence {
    /// Dispatches an invocation to this node. Its token is `token`, from the caller, and its namespace's frontier.
    fn dispatch(
        &self,
        now: Monotonic,
        (namespace, invocation): (&Namespace, InvocationId),
        token: &Token,
        begins: oneshot::Sender<Result<(), GateRefusal>>,
    ) {
        // A dispatch drops nothing.
        let ((), _) = self.step(|state, outcome| {
            let mut invocations = self.invocations.lock();
            let Invocations { gate, known, frontiers } = &mut *invocations;
            if frontiers.len() >= FRONTIERS_MAX && !frontiers.contains_key(namespace) {
                frontiers.clear();
            }
            let homes = || state.homes.iter().map(|(shard, side)| (*shard, &side.home));
            let begin = || Frontier::begin(homes().map(|(shard, home)| (shard, home.epoch())), Contract);
            let frontier = frontiers.entry(namespace.clone()).or_insert_with(begin);
            homes().for_each(|(shard, home)| frontier.read(shard, home.newest()));
            frontier.see(token);
            let entry = || TrackedInvocation { namespace: namespace.clone(), begins: None, ends: None };
            known.entry(invocation).or_insert_with(entry).begins = Some(begins);
            let mut told = Vec::new();
            match frontier.dispatch(state.node.cache.member()) {
                Some(dispatch) => state.node(now, outcome, |cache, sent| {
                    gate.dispatch(now, invocation, dispatch, cache, sent, &mut told);
                }),
                None => told.push(GateOutput::Refused(invocation, GateRefusal::NotCovered)),
            }
            invocations.hear(told);
        });
    }

    /// Dispatches an invocation that a scheduler elsewhere has placed on this node.
    fn admit(
        &self,
        now: Monotonic,
        (namespace, invocation): (&Namespace, InvocationId),
        dispatch: Dispatch,
        begins: oneshot::Sender<Result<(), GateRefusal>>,
    ) {
        // A dispatch drops nothing.
        let ((), _) = self.step(|state, outcome| {
            let mut invocations = self.invocations.lock();
            let Invocations { gate, known, .. } = &mut *invocations;
            let entry = || TrackedInvocation { namespace: namespace.clone(), begins: None, ends: None };
            known.entry(invocation).or_insert_with(entry).begins = Some(begins);
            let mut told = Vec::new();
            state.node(now, outcome, |cache, sent| gate.dispatch(now, invocation, dispatch, cache, sent, &mut told));
            invocations.hear(told);
        });
    }

    /// Begins the invocations that may begin now. Call it when node or home cover more, or time has passed.
    pub(super) fn look(&self, now: Monotonic) {
        let ((), _) = self.step(|state, outcome| {
            let mut invocations = self.invocations.lock();
            let mut told = Vec::new();
            state.node(now, outcome, |cache, sent| invocations.gate.look(now, cache, sent, &mut told));
            invocations.hear(told);
        });
    }

    /// What an invocation has seen.
    pub(super) fn seen_by(&self, invocation: InvocationId) -> Token {
        self.invocations.lock().seen_by(invocation)
    }

    /// A version no older than any of `shard` that this node can have shown or written: the newest that the home here
    /// was told of; or, if the home is elsewhere, the newest that the node covers.
    pub(super) fn newest(&self, shard: ShardId) -> Version {
        self.state.lock().newest(shard)
    }

    /// The token of the newest versions of all shards.
    fn newest_of_all(&self) -> Token {
        let (state, mut token) = (self.state.lock(), Token::empty());
        self.shards.all().for_each(|shard| token.see(shard, state.newest(shard)));
        token
    }

    async fn end(&self, invocation: InvocationId, within: Duration) -> Token {
        let (send, mut ended) = oneshot::channel();
        self.invocations.lock().ends(invocation, Some(send));
        if let Ok(token) = timeout(within, &mut ended).await {
            // An unknown invocation has seen nothing, so its token is empty.
            return token.unwrap_or_default();
        }
        let mut invocations = self.invocations.lock();
        ended.try_recv().unwrap_or_else(|_| {
            // Writes that the invocation still makes join its namespace's frontier later.
            let token = invocations.seen_by(invocation);
            if let Some(namespace) = invocations.known.get(&invocation).map(|known| known.namespace.clone()) {
                tracing::warn!(%invocation, ?within, "an invocation is told as ended and a write of it is under way");
                invocations.hand_over(&namespace, &token);
            }
            token
        })
    }
}

impl ObjectMemoryState {
    /// Adds an object's version to the token of the invocation: `who` is about to be shown the metadata.
    pub(super) fn shows(&self, who: &Principal, object: &ObjectId, meta: &ObjectMeta) {
        if let Some(invocation) = who.invocation {
            let shard = self.coherence.shards.of(object);
            self.coherence.invocations.lock().gate.has_read(invocation, shard, &meta.stamp());
        }
    }

    /// Adds the newest versions of all shards to the token of the invocation: `who` is about to be shown something
    /// without a version, such as a missing object, a refusal or a list.
    pub(super) fn shows_newest(&self, who: &Principal) {
        if let Some(invocation) = who.invocation {
            let newest = self.coherence.newest_of_all();
            let mut invocations = self.coherence.invocations.lock();
            for (shard, version) in newest.iter() {
                invocations.gate.has_read(invocation, shard, &Stamp { version, others: None });
            }
        }
    }
}

impl ObjectMemory {
    /// Begins an invocation here; its caller has seen `token`. Returns when this node covers that and all that the
    /// namespace's ended invocations and outside writers had seen. From then on its reads and writes join its token,
    /// until `end_invocation`.
    ///
    /// # Errors
    /// Why it may not begin, after two seconds at the latest. It has not begun then, and must not be ended.
    #[boxed]
    pub async fn begin_invocation(
        &self,
        namespace: &Namespace,
        invocation: InvocationId,
        token: &Token,
    ) -> Result<(), GateRefusal> {
        let coherence = &self.0.coherence;
        let (send, begun) = oneshot::channel();
        coherence.dispatch(self.0.now(), (namespace, invocation), token, send);
        self.until_begun(begun).await
    }

    /// Begins an invocation that a scheduler on another node dispatched. `token` is all that the invocation begins
    /// with, and only this incarnation of the node may run it.
    ///
    /// # Errors
    /// The same as for `begin_invocation`.
    #[boxed]
    pub async fn begin_dispatched(
        &self,
        namespace: &Namespace,
        invocation: InvocationId,
        dispatch: Dispatch,
    ) -> Result<(), GateRefusal> {
        let coherence = &self.0.coherence;
        let (send, begun) = oneshot::channel();
        let dispatch = Dispatch { token: self.0.compared().carried(dispatch.token), ..dispatch };
        coherence.admit(self.0.now(), (namespace, invocation), dispatch, send);
        self.until_begun(begun).await
    }

    async fn until_begun(&self, mut begun: oneshot::Receiver<Result<(), GateRefusal>>) -> Result<(), GateRefusal> {
        let coherence = &self.0.coherence;
        loop {
            let more = coherence.more_decided();
            coherence.look(self.0.now());
            match begun.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Empty) => {}
                // Another dispatch of the invocation has replaced this one.
                Err(TryRecvError::Closed) => return Err(GateRefusal::OtherIncarnation),
            }
            // The loop checks again after either.
            let _more_or_late = timeout(LIMITS.wait, more).await;
        }
    }

    /// Ends an invocation that has answered, failed, timed out or been killed. Returns when the outcome of each of its writes
    /// is known, or `within` has passed. Returns the token of what it had seen, with which the namespace's next one begins.
    #[boxed]
    pub async fn end_invocation(&self, invocation: InvocationId, within: Duration) -> Token {
        let seen = self.0.coherence.end(invocation, within).await;
        self.0.compared().carried(seen)
    }

    /// Like `end_invocation`, but does not wait.
    pub fn abandon_invocation(&self, invocation: InvocationId) {
        self.0.coherence.invocations.lock().ends(invocation, None);
    }

    /// The token that this node covers: an invocation whose token is no newer can be dispatched here without a wait.
    #[must_use]
    pub fn covered(&self) -> Token {
        self.0.compared().caught_up(self.0.coherence.newest_of_all())
    }

    /// What a running invocation has seen so far: a call that it makes begins with this token.
    #[must_use]
    pub fn seen_by(&self, invocation: InvocationId) -> Token {
        self.0.compared().carried(self.0.coherence.seen_by(invocation))
    }

    /// Adds to a running invocation's token what an invocation that it called had seen at its end.
    pub fn told_of(&self, invocation: InvocationId, token: &Token) {
        let mut invocations = self.0.coherence.invocations.lock();
        for (shard, version) in token.iter() {
            invocations.gate.has_read(invocation, shard, &Stamp { version, others: None });
        }
    }
}
