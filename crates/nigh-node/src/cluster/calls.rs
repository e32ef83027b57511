//! The door for other nodes: passes each call to the keeper of homes, the activation records, what members tell of
//! themselves, dispatch, or the object memory.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use nigh_dispatch::FIRST_DISPATCH_METHOD;
use nigh_invoke::activation_log::ActivationLog;
use nigh_rpc::{Call, Handler, Hello, Identity, Method, Refusal, RefusalKind, Reply, Role};

use super::members::{self, MEMBERS, MemberSource};
use super::newest::{NEWEST, OwnEpochs};
use super::records::{self, RECORDS};

/// The lowest method number of the object memory.
pub const FIRST_OBJECT_METHOD: u16 = 16;

/// Answers the calls of other nodes.
pub(super) struct Calls {
    pub(super) own: Identity,
    pub(super) epochs: OnceLock<OwnEpochs>,
    pub(super) objects: OnceLock<Arc<dyn Handler>>,
    /// Set on a controller.
    pub(super) dispatch: OnceLock<Arc<dyn Handler>>,
    /// Set on a node that runs functions.
    pub(super) running: OnceLock<Arc<dyn Handler>>,
    /// The records of the invocations that ran here.
    pub(super) records: OnceLock<ActivationLog>,
    /// What this node tells of itself.
    pub(super) members: OnceLock<Weak<dyn MemberSource>>,
}

impl Calls {
    /// The handler of a method of dispatch.
    fn of_dispatch(&self, number: u16) -> Option<(&Arc<dyn Handler>, &'static Method)> {
        let served = [self.running.get(), self.dispatch.get()];
        served.into_iter().flatten().find_map(|handler| Some((handler, handler.method(number)?)))
    }
}

#[async_trait]
impl Handler for Calls {
    fn method(&self, number: u16) -> Option<&'static Method> {
        match number {
            number if number == NEWEST.number => Some(&NEWEST),
            number if number == RECORDS.number => Some(&RECORDS),
            number if number == MEMBERS.number => Some(&MEMBERS),
            number if number >= FIRST_DISPATCH_METHOD => self.of_dispatch(number).map(|(_, method)| method),
            number if number >= FIRST_OBJECT_METHOD => self.objects.get()?.method(number),
            _ => None,
        }
    }

    fn admits(&self, peer: &Hello) -> Result<(), Refusal> {
        let refused = |why: String| Err(Refusal::new(RefusalKind::Forbidden, why));
        let (ours, theirs) = (self.own.cluster(), peer.identity.cluster());
        if ours != theirs {
            return refused(format!("this is a node of the cluster {ours}, you are of {theirs}"));
        }
        if peer.identity.role() == Role::Operator {
            return refused(
                "operators cannot call a node over the cluster's network; use the node's admin socket".to_owned(),
            );
        }
        self.objects.get().map_or(Ok(()), |objects| objects.admits(peer))
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        let not_yet = || Refusal::new(RefusalKind::Closing, "this node is starting and serves nothing yet");
        if call.method.number == NEWEST.number {
            return self.epochs.get().ok_or_else(not_yet)?.answer(&call);
        }
        if call.method.number == RECORDS.number {
            let log = self.records.get().ok_or_else(not_yet)?;
            return records::answer(log, call.head).await;
        }
        if call.method.number == MEMBERS.number {
            return members::answer(self.members.get(), &call.head).await;
        }
        if call.method.number >= FIRST_DISPATCH_METHOD {
            let (handler, _) = self.of_dispatch(call.method.number).ok_or_else(not_yet)?;
            let handler = Arc::clone(handler);
            return handler.call(call).await;
        }
        let objects = Arc::clone(self.objects.get().ok_or_else(not_yet)?);
        objects.call(call).await
    }
}
