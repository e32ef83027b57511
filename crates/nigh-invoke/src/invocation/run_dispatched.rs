//! What a node does for controllers.

use std::sync::Arc;

use async_trait::async_trait;
use nigh_functions::function::Function;
use nigh_protocol::Member;
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::Namespace;

use super::{InvocationResult, InvokeError, InvokeRequest, UpcomingInvocation};

/// Runs what controllers dispatch to this node.
#[async_trait]
pub trait RunDispatched: Send + Sync {
    /// Runs `request` of `function` in the incarnation `to` of this node. The request's token is all that the invocation
    /// begins with; `why` says how the node was chosen. If this future is dropped, the invocation goes on to its end.
    ///
    /// # Errors
    /// Why no byte of it has run.
    async fn run(
        &self,
        function: Arc<Function>,
        request: InvokeRequest,
        to: Member,
        why: &str,
    ) -> Result<InvocationResult, InvokeError>;

    /// The free capacity of the node.
    fn vacancy(&self) -> Vacancy;

    /// `next` may come soon: a sandbox may be made for it and prepared.
    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation);
}
