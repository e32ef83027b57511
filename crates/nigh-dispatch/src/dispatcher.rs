//! Takes invocations at any process of a cluster.
//!
//! Decisions are in `controller`, `owners::ownership` and `nigh_schedule::scheduler::lost_invocation`. An invocation is a
//! task of its own: when its caller hangs up, it goes on and its end is recorded.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::ObjectError;
use nigh_engine::{Namespaces, NodeRole, PresentMember};
use nigh_invoke::invocation::{EventAttempt, InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
use nigh_invoke::schedule_runner::LeadsNamespaces;
use nigh_objects::cluster::Frontiers;
use nigh_terms::{FunctionName, Incarnation, InvocationId, Namespace, NodeId, Principal, Token};

use crate::dispatcher_state::{DispatchAuthority, DispatchSettings, DispatcherParts, DispatcherState, Outcome};
use crate::kept_runs::{Arrival, until_answered};
use crate::owners::Owner;
use crate::wire::{EndedHead, InvokeHead, ReportHead, RunAnswer, RunId};

/// How often the dispatcher looks for invocations whose time is over.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// Takes invocations. A clone is another handle to the same.
#[derive(Clone)]
pub struct Dispatcher(pub(super) Arc<DispatcherState>);

impl Dispatcher {
    /// A dispatcher that takes invocations. To be made within a runtime.
    #[must_use]
    pub fn new(parts: DispatcherParts, settings: DispatchSettings) -> Self {
        let inner = Arc::new_cyclic(|itself| DispatcherState::new(Weak::clone(itself), parts, settings));
        keep_going(&inner);
        Self(inner)
    }

    /// The namespaces that this process owns now.
    #[must_use]
    pub fn owned(&self) -> Vec<Namespace> {
        let mut owned: Vec<Namespace> = self.0.controller.lock().placing.owned.keys().cloned().collect();
        owned.sort_unstable();
        owned
    }

    /// The weight of `namespace` when several namespaces wait for nodes; 1 by default.
    pub fn set_share(&self, namespace: &Namespace, share: u32) {
        self.0.controller.lock().queue.set_weight(namespace.clone(), share);
    }

    /// From now on the namespaces that this process owns book no more memory than their quotas. Call this once.
    pub fn limit_by(&self, namespaces: Namespaces) {
        // A second call changes nothing.
        let _ = self.0.quotas.set(namespaces);
    }

    /// Releases all namespaces and takes none any more: others own them from now on.
    #[boxed]
    pub async fn leave(&self) {
        self.0.leaving.store(true, Ordering::SeqCst);
        for namespace in self.owned() {
            if let Err(error) = self.0.let_go(&namespace).await {
                tracing::warn!(%namespace, %error, "the namespace is not released; another controller takes it over when this node has left");
            }
        }
    }

    pub(super) fn owns(&self) -> bool {
        self.0.parts.owns
    }

    /// A node reports. False if the node is not known yet: then it must report everything again.
    pub(super) fn report(&self, report: ReportHead) -> bool {
        let mut controller = self.0.controller.lock();
        let heard = controller.placing.view.report(report);
        if heard {
            controller.pump(self.0.parts.clock.monotonic());
        }
        heard
    }

    /// Runs an invocation that another process has handed on, or tells what came of it.
    pub(super) async fn handed(&self, head: InvokeHead, payload: Bytes) -> (RunAnswer, Bytes) {
        let InvokeHead { namespace, function, id, attempt, wrote, send, again, client_context, token } = head;
        let run = RunId { invocation: id, attempt: attempt.unwrap_or(1), term: 0, send };
        if again {
            let found = self.0.handed.lock().asked(self.0.now(), run);
            return found.answer().await;
        }
        let arrival = self.0.handed.lock().arrives(run);
        let answer = match arrival {
            Arrival::New(answer) => answer,
            Arrival::Known(found) => return found.answer().await,
        };
        let (inner, awaited) = (Arc::clone(&self.0), answer.subscribe());
        let event = attempt.map(|attempt| EventAttempt { id, attempt, wrote });
        let request = InvokeRequest { function, payload, client_context, token, event };
        tokio::spawn(async move {
            let (said, body) = match inner.spawned(namespace, request, id, DispatchAuthority::ThisProcess).await {
                Ok(Outcome::Ended(invoked)) => {
                    (RunAnswer::Ended { ended: EndedHead::of(&invoked), settled: true }, invoked.payload)
                }
                Ok(Outcome::NotOwner) => (RunAnswer::TermOver, Bytes::new()),
                Err(error) => (RunAnswer::NotRun(error.into()), Bytes::new()),
            };
            inner.handed.lock().over(inner.now(), run, &answer, (said, body));
        });
        until_answered(awaited).await
    }
}

/// Follows the members and the time, until the dispatcher is dropped.
fn keep_going(inner: &Arc<DispatcherState>) {
    let (weak, mut present) = (Arc::downgrade(inner), inner.parts.present.clone());
    tokio::spawn(async move {
        present.mark_changed();
        let (mut is_watched, mut controllers) = (true, Vec::new());
        loop {
            let Some(inner) = weak.upgrade() else { return };
            let changed = tokio::select! {
                changed = present.changed(), if is_watched => Some(changed.is_ok()),
                () = inner.room.notified() => None,
                () = tokio::time::sleep(LOOKED_EVERY) => None,
            };
            if let Some(goes_on) = changed {
                is_watched = goes_on;
                let before = std::mem::replace(&mut controllers, controllers_of(&present.borrow()));
                if inner.parts.owns && before.iter().any(|known| !controllers.contains(known)) {
                    let inner = Arc::clone(&inner);
                    tokio::spawn(async move { inner.take_abandoned().await });
                }
            }
            let mut controller = inner.controller.lock();
            if changed.is_some() {
                controller.placing.view.members(&present.borrow_and_update());
            }
            controller.pump(inner.parts.clock.monotonic());
            metrics::gauge!("nigh_dispatch_waiting").set(controller.queue.len() as f64);
            metrics::gauge!("nigh_dispatch_namespaces_owned").set(controller.placing.owned.len() as f64);
        }
    });
}

fn controllers_of(present: &[PresentMember]) -> Vec<(NodeId, Incarnation)> {
    let controllers = present.iter().filter(|member| member.has(NodeRole::Controller));
    controllers.map(|member| (member.node.clone(), member.incarnation)).collect()
}

#[async_trait]
impl Invoke for Dispatcher {
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let id = request.event.map_or_else(InvocationId::now, |event: EventAttempt| event.id);
        let result = match self.0.spawned(who.namespace.clone(), request, id, DispatchAuthority::Anybody).await {
            Ok(Outcome::Ended(invoked)) => Ok(invoked),
            Ok(Outcome::NotOwner) => Err(InvokeError::Internal("an invocation was handed on twice".to_owned())),
            Err(error) => Err(error),
        };
        match (&result, who.invocation, &self.0.parts.gate) {
            (Ok(invoked), Some(caller), Some(gate)) => gate.told_of(caller, &invoked.token),
            (Ok(_), ..) => {}
            (Err(_), ..) => metrics::counter!("nigh_invocations_refused_total").increment(1),
        }
        result
    }

    fn seen(&self, who: &Principal) -> Token {
        match (who.invocation, &self.0.parts.gate) {
            (Some(caller), Some(gate)) => gate.seen(caller),
            _ => Token::empty(),
        }
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        self.0.prepare((namespace.clone(), next.function), next.after);
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.0.controller.lock().set_reserved((namespace.clone(), function.clone()), concurrency);
    }
}

#[async_trait]
impl Frontiers for Dispatcher {
    async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError> {
        self.0.hand_over(namespace, token).await
    }
}

#[async_trait]
impl LeadsNamespaces for Dispatcher {
    /// A namespace without an owner gets one: this process, if it may be the owner.
    async fn leads(&self, namespace: &Namespace) -> bool {
        self.owns() && matches!(self.owner_of(namespace).await, Ok(Owner::Me(_)))
    }
}
