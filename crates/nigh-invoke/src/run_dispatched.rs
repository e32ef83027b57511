//! What a node does for those who dispatch to it.

use async_trait::async_trait;
use nigh_protocol::Member;
use nigh_schedule::vacancy::Vacancy;
use nigh_terms::Namespace;

use crate::invocation::{InvocationResult, InvokeError, InvokeRequest, UpcomingInvocation};

/// Runs what was dispatched to this node.
#[async_trait]
pub trait RunDispatched: Send + Sync {
    /// Runs `request`, whose token is all that it begins with, in the life `to` of this node; `why` says how the node was
    /// chosen. It goes on to its end if this is dropped.
    ///
    /// # Errors
    /// Why no byte of it has run.
    async fn run(
        &self,
        namespace: &Namespace,
        request: InvokeRequest,
        to: Member,
        why: &str,
    ) -> Result<InvocationResult, InvokeError>;

    /// What of the node is free.
    fn vacancy(&self) -> Vacancy;

    /// `next` may come soon: what it needs may be made ready.
    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation);
}
