//! The gate that an invocation passes before it runs and at its end, as the invoker asks for it.
//!
//! Behind it stands who knows what this node has applied, and joins what an invocation reads and writes: the object
//! memory. Here it is seen to that whatever has begun is ended, once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_objects::ObjectMemory;
use nigh_protocol::{Dispatch, GateRefusal};
use nigh_terms::{InvocationId, Namespace, Token};

/// Lets invocations begin, and tells what they have seen.
#[async_trait]
pub trait InvocationGate: Send + Sync {
    /// Returns when an invocation of `namespace` may begin, whose caller has seen `token`.
    ///
    /// # Errors
    /// Why it may not; bounded in time. Nothing of it is to run then, and it is not to be ended.
    async fn begin(&self, namespace: &Namespace, invocation: InvocationId, token: &Token) -> Result<(), GateRefusal>;

    /// As `begin`, of an invocation that a scheduler elsewhere has dispatched to this life of this node: it begins with the
    /// dispatch's token, whatever is known here of its namespace.
    ///
    /// # Errors
    /// As `begin`; of another life of this node it is refused.
    async fn begin_dispatched(
        &self,
        namespace: &Namespace,
        invocation: InvocationId,
        dispatch: Dispatch,
    ) -> Result<(), GateRefusal>;

    /// It has ended. Returns when the fate of each of its writes is known, or `within` has passed: what it had seen.
    async fn end(&self, invocation: InvocationId, within: Duration) -> Token;

    /// It has ended, and nobody waits to hear what it had seen.
    fn abandon(&self, invocation: InvocationId);

    /// What a running invocation has seen so far: with that begins what it calls.
    fn seen(&self, invocation: InvocationId) -> Token;

    /// A running invocation is about to get the answer of one that had seen `token`.
    fn told_of(&self, invocation: InvocationId, token: &Token);
}

#[async_trait]
impl InvocationGate for ObjectMemory {
    async fn begin(&self, namespace: &Namespace, invocation: InvocationId, token: &Token) -> Result<(), GateRefusal> {
        self.begin_invocation(namespace, invocation, token).await
    }

    async fn begin_dispatched(
        &self,
        namespace: &Namespace,
        invocation: InvocationId,
        dispatch: Dispatch,
    ) -> Result<(), GateRefusal> {
        Self::begin_dispatched(self, namespace, invocation, dispatch).await
    }

    async fn end(&self, invocation: InvocationId, within: Duration) -> Token {
        self.end_invocation(invocation, within).await
    }

    fn abandon(&self, invocation: InvocationId) {
        self.abandon_invocation(invocation);
    }

    fn seen(&self, invocation: InvocationId) -> Token {
        self.seen_by(invocation)
    }

    fn told_of(&self, invocation: InvocationId, token: &Token) {
        Self::told_of(self, invocation, token);
    }
}

/// What an invocation begins with.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// Whoever calls it has seen this; what its namespace has seen is known here.
    Called(Token),
    /// A scheduler elsewhere has sent it, with all that it is to have seen.
    Dispatched(Dispatch),
}

impl Entrance {
    /// Nobody has called yet.
    pub(crate) fn of_nobody() -> Self {
        Self::Called(Token::empty())
    }
}

/// An invocation that has passed the gate; one that is dropped is abandoned.
pub(crate) struct GatePass {
    gate: Arc<dyn InvocationGate>,
    id: InvocationId,
    ended: bool,
}

impl GatePass {
    pub(crate) async fn begin(
        gate: &Arc<dyn InvocationGate>,
        namespace: &Namespace,
        id: InvocationId,
        entrance: &Entrance,
    ) -> Result<Self, GateRefusal> {
        match entrance {
            Entrance::Called(token) => gate.begin(namespace, id, token).await?,
            Entrance::Dispatched(dispatch) => gate.begin_dispatched(namespace, id, dispatch.clone()).await?,
        }
        Ok(Self { gate: Arc::clone(gate), id, ended: false })
    }

    pub(crate) const fn id(&self) -> InvocationId {
        self.id
    }

    pub(crate) async fn end(mut self, within: Duration) -> Token {
        let token = self.gate.end(self.id, within).await;
        self.ended = true;
        token
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        if !self.ended {
            self.gate.abandon(self.id);
        }
    }
}
