//! What the leader of a namespace's executions (`nigh_workflow::owned`) asks of a dispatcher: who owns the namespace,
//! invocations in one term only, the results of invocations of earlier terms, and requests handed to the owner.

use std::sync::{Arc, Weak};

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use bytes::Bytes;
use nigh_engine::{PresentMember, RegistryError};
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
use nigh_terms::{FunctionName, InvocationId, Namespace, Principal, Token};
use tokio_util::sync::CancellationToken;

use crate::dispatcher::Dispatcher;
use crate::dispatcher_state::{AnswerStates, DispatchAuthority, Outcome};
use crate::owners::Owner;
use crate::owners::ownership::{Ownership, OwnershipState};
use crate::wire::AskedStates;

impl Dispatcher {
    /// `door` answers the requests that other processes hand on. A second call changes nothing.
    pub fn answer_states_by(&self, door: &Arc<dyn AnswerStates>) {
        let _ = self.0.states.set(Arc::downgrade(door));
    }

    pub(super) async fn answer_states(&self, asked: AskedStates, body: Bytes) -> Option<(u16, Bytes)> {
        self.0.states.get().and_then(Weak::upgrade)?.answer(asked, body).await
    }

    /// Who owns `namespace`. This process becomes its owner if there is none and it may.
    #[boxed]
    pub async fn owner_of(&self, namespace: &Namespace) -> Result<Owner, InvokeError> {
        self.0.owner(namespace, self.0.now().after(self.0.settings.wait)).await
    }

    /// The process that `owner_of` has named does not own `namespace`, or does not answer: `owner_of` asks the registry next.
    pub fn not_owner(&self, namespace: &Namespace) {
        self.0.not_owner(namespace);
    }

    /// This process does not own `namespace` in `term` any more.
    pub fn forget(&self, namespace: &Namespace, term: u64) {
        self.0.forget(namespace, term);
    }

    /// How this process stands to the namespace of this document.
    pub fn standing(&self, document: &Ownership) -> OwnershipState {
        self.0.standing(Some(document))
    }

    /// The rank of this process among those that may take `namespace` if it has no owner; None if it may not.
    pub fn rank(&self, namespace: &Namespace) -> Option<usize> {
        self.0.rank(namespace)
    }

    /// Registers that `namespace` has executions. False if this process does not own it in `term`.
    #[boxed]
    pub async fn will_execute(&self, namespace: &Namespace, term: u64) -> Result<bool, RegistryError> {
        self.0.will_execute(namespace, term).await
    }

    /// Hands a request to `owner`. None if `owner` does not own the namespace.
    #[boxed]
    pub async fn ask_states(
        &self,
        owner: &PresentMember,
        asked: &AskedStates,
        body: Bytes,
    ) -> Result<Option<(u16, Bytes)>, String> {
        let answered = self.0.ask_states(owner, asked, body).await;
        if !matches!(answered, Ok(Some(_))) {
            self.not_owner(&asked.namespace);
        }
        answered
    }

    /// Runs invocations only while this process owns their namespace in `term`; cancels `over` when that has ended.
    pub fn in_term(&self, term: u64, over: CancellationToken) -> InTerm {
        InTerm { dispatcher: self.clone(), term, over }
    }
}

/// Runs invocations only in one term: afterwards another process leads the executions.
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
                // Before the caller takes this error for the end of a task.
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
        // If another process owns the namespace by now, it finds the invocation too.
        self.dispatcher.0.controller.lock().see(namespace, Some(self.term), &found.token);
        Some(found)
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.dispatcher.set_reserved(namespace, function, concurrency);
    }
}
