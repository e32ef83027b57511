//! What an invoker does beside invocations, until it is dropped: idle sandboxes end, cold starts are carried out, and what
//! may be invoked next is made ready.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use nigh_functions::function::Function;
use nigh_terms::Namespace;

use super::InvokerState;
use crate::invocation::UpcomingInvocation;
use crate::sandboxes::admission::Lease;

/// How long what was made ready for an expected invocation is kept for it.
const PREPARED_FOR: Duration = Duration::from_secs(10);
/// How often idle sandboxes are looked at.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// Starts the tasks of an invoker.
pub(super) fn start(inner: &Arc<InvokerState>) {
    reap(inner);
    end_for_growth(inner);
    make_sandboxes(inner);
    look_while_somebody_waits(inner);
    if let Some(prewarmer) = &inner.prewarmer {
        prewarmer.keep_going(&inner.tasks);
    }
}

/// Ends idle sandboxes whose time has come or whose function has changed.
fn reap(inner: &Arc<InvokerState>) {
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(REAP_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let Some(inner) = inner.upgrade() else { return };
            inner.reap().await;
        }
    });
}

/// Ends the idle sandboxes that the node's memory chooses.
fn end_for_growth(inner: &Arc<InvokerState>) {
    let Some(mut to_end) = inner.executor.memory.take_ends() else { return };
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        while let Some(id) = to_end.recv().await {
            let Some(inner) = inner.upgrade() else { return };
            // A sandbox that has an invocation by now is not idle any more.
            if let Some(idle) = inner.sandboxes.take_idle_named(id) {
                idle.end().await;
            }
        }
    });
}

/// Carries out cold starts.
fn make_sandboxes(inner: &Arc<InvokerState>) {
    let Some(mut starts) = inner.sandboxes.take_cold_starts() else { return };
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        while let Some(start) = starts.recv().await {
            let Some(inner) = inner.upgrade() else { return };
            let makes = Arc::clone(&inner);
            inner.tasks.spawn(async move { makes.maker.make(start).await });
        }
    });
}

/// Asks the pool now and then while an invocation waits: time alone may change what is to be done.
fn look_while_somebody_waits(inner: &Arc<InvokerState>) {
    let (weak, sandboxes) = (Arc::downgrade(inner), Arc::clone(&inner.sandboxes));
    tokio::spawn(async move {
        while weak.strong_count() > 0 {
            sandboxes.look_later(REAP_EVERY).await;
        }
    });
}

impl InvokerState {
    async fn reap(&self) {
        let mut stale: Vec<Arc<Function>> = Vec::new();
        for idle in self.sandboxes.idle_functions() {
            let current = self.functions.find(&idle.namespace, &idle.name).await;
            stale.extend(current.is_none_or(|current| !current.same_version(&idle)).then_some(idle));
        }
        // A function whose first sandbox has become idle since then counts as current.
        let is_stale = |idle: &Function| stale.iter().any(|stale| stale.same_version(idle));
        join_all(self.sandboxes.take_expired(is_stale).into_iter().map(Lease::end)).await;
        self.sandboxes.alive().iter().for_each(|live| live.forget_prepared(PREPARED_FOR));
        let in_use = self.sandboxes.in_use();
        metrics::gauge!("nigh_sandboxes", "state" => "idle").set(in_use.idle as f64);
        metrics::gauge!("nigh_sandboxes", "state" => "busy").set(in_use.sandboxes.saturating_sub(in_use.idle) as f64);
        metrics::gauge!("nigh_sandboxes", "state" => "prewarmed").set(in_use.stems as f64);
    }

    /// Makes ready what is known of an invocation that may come.
    pub(super) async fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        let Some(function) = self.functions.find(namespace, &next.function).await else { return };
        // An invocation that comes while the sandbox is made waits for it.
        if let Some(start) = self.sandboxes.start_ahead(&function) {
            self.maker.make(start).await;
        }
        let Some(live) = self.sandboxes.warmest(&function) else { return };
        let input = next.input.or_else(|| self.latest.lock().of(&function));
        self.executor.prepare(&live, &input.unwrap_or_default(), next.after).await;
    }
}
