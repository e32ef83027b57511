//! The gate that an invocation passes before it runs and at its end.
//!
//! The object memory implements the gate: it knows which versions this node covers, and joins what an invocation reads and
//! writes. `GatePass` makes sure that an invocation that has begun ends exactly once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_objects::ObjectMemory;
use nigh_protocol::{Dispatch, GateRefusal};
use nigh_terms::{InvocationId, Namespace, Token};

/// Lets invocations begin, and tells what they have seen.
#[async_trait]
pub trait InvocationGate: Send + Sync {
    /// Returns when an invocation of `namespace` may begin whose caller has seen `token`.
    ///
    /// # Errors
    /// Why it may not begin; the wait is bounded. Then nothing of it runs, and `end` must not be called.
    async fn begin(&self, namespace: &Namespace, invocation: InvocationId, token: &Token) -> Result<(), GateRefusal>;

    /// As `begin`, for an invocation that a controller has dispatched to this incarnation of this node. It begins with the
    /// dispatch's token only, whatever this node knows of its namespace.
    ///
    /// # Errors
    /// As `begin`; also if the dispatch names another incarnation.
    async fn begin_dispatched(
        &self,
        namespace: &Namespace,
        invocation: InvocationId,
        dispatch: Dispatch,
    ) -> Result<(), GateRefusal>;

    /// The invocation has ended. Returns what it had seen when the outcome of each of its writes is known, or after `within`.
    async fn end(&self, invocation: InvocationId, within: Duration) -> Token;

    /// The invocation has ended, and nobody needs its token.
    fn abandon(&self, invocation: InvocationId);

    /// What a running invocation has seen so far: the invocations that it makes begin with that.
    fn seen(&self, invocation: InvocationId) -> Token;

    /// A running invocation is about to get the answer of an invocation that had seen `token`.
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

/// How an invocation enters the gate.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// Its caller has seen this token; this node knows what its namespace has seen.
    Called(Token),
    /// A controller has dispatched it, with all that it must have seen.
    Dispatched(Dispatch),
}

impl Entrance {
    /// There is no caller yet.
    pub(crate) fn of_nobody() -> Self {
        Self::Called(Token::empty())
    }
}

/// An invocation that has passed the gate. If this is dropped, the invocation is abandoned.
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
