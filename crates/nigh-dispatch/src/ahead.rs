//! Prepares for the functions that may run next: sandboxes at the node that would run them, and the objects that they will
//! read.

use std::sync::Arc;
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_invoke::applications::{KnownInput, PrefetchPlan};
use nigh_protocol::Member;
use nigh_terms::InvocationId;

use crate::controller::cluster_view::FunctionKey;
use crate::dispatcher_state::DispatcherState;
use crate::wire::{PREPARE, PrepareHead, encode};

/// At most one sandbox is prepared for a function within this time.
const MADE_AHEAD_EVERY: Duration = Duration::from_millis(500);
/// The most functions that get a sandbox within `MADE_AHEAD_EVERY`.
const MADE_AHEAD_MAX: usize = 1024;

impl DispatcherState {
    /// An invocation was sent to `node`. Prefetches, in the background, what the application's next function will probably read
    /// to the node where that function will probably run.
    pub(super) async fn prefetch(self: &Arc<Self>, input: &KnownInput, node: Member) {
        let Some(memory) = self.parts.memory.clone() else { return };
        let Some(PrefetchPlan { next, objects }) = self.parts.applications.starts(input, self.now()) else { return };
        let Some(next) = self.parts.functions.find(input.namespace(), &next).await else { return };
        let reads: Vec<NamePrint> = objects.iter().map(NamePrint::of).collect();
        let to = self.controller.lock().placing.foresee(&next, &reads, node).unwrap_or(node);
        let (inner, input) = (Arc::clone(self), input.clone());
        tokio::spawn(async move {
            match memory.bring_at(to.node, &objects).await {
                Ok(brought) => {
                    let copies = reads.into_iter().zip(brought.iter().copied()).filter(|(_, bytes)| *bytes > 0);
                    inner.controller.lock().placing.view.brought(to, copies);
                    inner.parts.applications.brought(&input, &objects, &brought, inner.now());
                }
                Err(why) => tracing::debug!(node = to.node.0, %why, "objects were not prefetched"),
            }
        });
    }

    /// Asks the node to which the function's next invocation would go now to prepare a sandbox.
    pub(super) fn prepare(self: &Arc<Self>, which: FunctionKey, after: Option<InvocationId>) {
        let now = self.now();
        {
            let mut made = self.made_ahead.lock();
            made.retain(|_, at| now.since(*at) < MADE_AHEAD_EVERY);
            if made.len() >= MADE_AHEAD_MAX || made.contains_key(&which) {
                return;
            }
            made.insert(which.clone(), now);
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let (namespace, function) = which;
            let Some(found) = inner.parts.functions.find(&namespace, &function).await else { return };
            let Some(node) = inner.controller.lock().placing.ahead(&found) else { return };
            let Some(node) = inner.living(|one| one.node == node) else { return };
            let to = Member { node: node.presence.number, incarnation: node.incarnation };
            let head = encode(&PrepareHead { namespace, function, after, to });
            if let Err(why) = inner.small::<()>(&node, &PREPARE, &head).await {
                tracing::debug!(node = %node.node, why, "a node did not hear that an invocation may come");
            }
        });
    }
}
