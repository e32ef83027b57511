//! What whoever leads executions (`workflow::owned`) asks of a dispatcher: whose a namespace is, invocations of one term
//! alone, what became of those of earlier terms, and requests handed to the owner.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use nigh_engine::{PresentMember, RegistryError};
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
use nigh_terms::{FunctionName, InvocationId, Namespace, Principal, Token};
use tokio_util::sync::CancellationToken;

use super::dispatcher::{DispatchAuthority, Dispatcher, Outcome};
use super::owners::Owner;
use super::ownership::{Ownership, OwnershipState};
use super::wire::AskedStates;

/// Answers requests of the Step Functions API for the namespaces that this process owns.
#[async_trait]
pub trait AnswerStates: Send + Sync {
    /// The status and the body of the answer; nothing if another process owns the namespace.
    async fn answer(&self, asked: AskedStates, body: Bytes) -> Option<(u16, Bytes)>;
}

impl Dispatcher {
    /// Requests that other processes hand on are answered by `door` from now on. A second time changes nothing.
    pub fn answer_states_by(&self, door: &Arc<dyn AnswerStates>) {
        let _ = self.0.states.set(Arc::downgrade(door));
    }

    pub(super) async fn answer_states(&self, asked: AskedStates, body: Bytes) -> Option<(u16, Bytes)> {
        self.0.states.get().and_then(Weak::upgrade)?.answer(asked, body).await
    }

    /// Whose `namespace` is. This process becomes its owner if nobody is, and it may.
    pub async fn owner_of(&self, namespace: &Namespace) -> Result<Owner, InvokeError> {
        self.0.owner(namespace, self.0.now().after(self.0.settings.wait)).await
    }

    /// This process owns `namespace` no longer, at least not in `term`.
    pub fn forget(&self, namespace: &Namespace, term: u64) {
        self.0.forget(namespace, term);
    }

    /// How this process stands to a namespace of this document.
    pub fn standing(&self, document: &Ownership) -> OwnershipState {
        self.0.standing(Some(document))
    }

    /// Which of those this process is that would take `namespace`, if it has no owner; none if it may not.
    pub fn rank(&self, namespace: &Namespace) -> Option<usize> {
        self.0.rank(namespace)
    }

    /// Has it known that `namespace` has executions. False if this process does not own it in `term`.
    pub async fn will_execute(&self, namespace: &Namespace, term: u64) -> Result<bool, RegistryError> {
        self.0.will_execute(namespace, term).await
    }

    /// Hands a request to `owner`; nothing, if that is not the owner.
    pub async fn ask_states(
        &self,
        owner: &PresentMember,
        asked: &AskedStates,
        body: Bytes,
    ) -> Result<Option<(u16, Bytes)>, String> {
        let answered = self.0.ask_states(owner, asked, body).await;
        if !matches!(answered, Ok(Some(_))) {
            self.0.not_owner(&asked.namespace);
        }
        answered
    }

    /// What runs invocations in `term` of this process alone, and cancels `over` when that is found to be over.
    pub fn in_term(&self, term: u64, over: CancellationToken) -> InTerm {
        InTerm { dispatcher: self.clone(), term, over }
    }
}

/// Runs invocations in one term alone: what was led in it is led by another afterwards.
pub struct InTerm {
    dispatcher: Dispatcher,
    term: u64,
    over: CancellationToken,
}

#[async_trait]
impl Invoke for InTerm {
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let id = request.event.map_or_else(InvocationId::now, |event| event.id);
        match self.dispatcher.0.spawned(who.namespace.clone(), request, id, DispatchAuthority::Term(self.term)).await {
            Ok(Outcome::Ended(invoked)) => Ok(invoked),
            Ok(Outcome::NotOwner) => {
                // Before anybody takes this for an end.
                self.over.cancel();
                Err(InvokeError::ShuttingDown)
            }
            Err(error) => Err(error),
        }
    }

    fn seen(&self, who: &Principal) -> Token {
        self.dispatcher.seen(who)
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        self.dispatcher.prepare(namespace, next);
    }

    async fn find(&self, namespace: &Namespace, id: InvocationId) -> Option<InvocationResult> {
        let found = self.dispatcher.0.find_run(id, None).await?;
        // Whoever owns the namespace by now finds it too, if it is not this one.
        self.dispatcher.0.books.lock().see(namespace, Some(self.term), &found.token);
        Some(found)
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.dispatcher.set_reserved(namespace, function, concurrency);
    }
}
