//! Guards that an invocation or a cold start holds. When a guard is dropped it tells the pool.

use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_schedule::sandbox_pool::{SandboxEndReason, StartId};
use nigh_terms::Monotonic;

use super::Sandboxes;
use crate::sandboxes::live_sandbox::LiveSandbox;

/// A running invocation.
pub(crate) struct RunGuard {
    sandboxes: Arc<Sandboxes>,
    function: Arc<Function>,
}

impl RunGuard {
    pub(super) fn new(sandboxes: &Arc<Sandboxes>, function: Arc<Function>) -> Self {
        Self { sandboxes: Arc::clone(sandboxes), function }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.sandboxes.state.lock().pool.finished(&self.function);
        self.sandboxes.serve();
    }
}

/// A sandbox that is being made. If it does not become ready, it is ended and its room becomes free.
pub(crate) struct StartGuard {
    sandboxes: Arc<Sandboxes>,
    start: Option<StartId>,
    live: Option<Arc<LiveSandbox>>,
}

impl StartGuard {
    pub(super) fn new(sandboxes: &Arc<Sandboxes>, start: StartId) -> Self {
        Self { sandboxes: Arc::clone(sandboxes), start: Some(start), live: None }
    }

    /// The sandbox has started.
    pub(crate) fn is(&mut self, live: &Arc<LiveSandbox>) {
        let (sandboxes, of) = (Arc::downgrade(&self.sandboxes), Arc::downgrade(live));
        live.on_rest(Box::new(move |held| {
            if let (Some(sandboxes), Some(live)) = (sandboxes.upgrade(), of.upgrade()) {
                sandboxes.rests(&live, held);
            }
        }));
        self.sandboxes.state.lock().alive.insert(live.id, Arc::clone(live));
        self.live = Some(Arc::clone(live));
    }

    /// The sandbox asks for its first input, `took` after its start: invocations may have it.
    pub(crate) async fn ready(mut self, took: Duration) {
        let Some(live) = self.live.clone() else { return };
        if live.runtime.has_ended() {
            return self.end().await;
        }
        let (Some(start), sandboxes) = (self.start.take(), Arc::clone(&self.sandboxes)) else { return };
        self.live = None;
        live.rest(sandboxes.freeze_grace);
        let now = sandboxes.now();
        let (refused, done) = {
            let mut state = sandboxes.state.lock();
            let refused = state.pool.started(start, Arc::clone(&live), took, now);
            // A sandbox that ended just now was not idle when `watch` noticed that.
            let has_ended = live.runtime.has_ended() && state.pool.take(&live, &SandboxEndReason::Died);
            let refused = refused.or_else(|| has_ended.then(|| Arc::clone(&live)));
            if let Some(held) = live.held() {
                state.pool.rests(&live, held);
            }
            (refused, sandboxes.commands(&mut state, now))
        };
        sandboxes.carry_out(done);
        if let Some(live) = refused {
            end(&sandboxes, live).await;
        }
    }

    /// The start failed: ends what there is of the sandbox.
    pub(crate) async fn end(mut self) {
        if let Some(live) = self.live.take() {
            live.end().await;
            self.sandboxes.state.lock().alive.remove(&live.id);
        }
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        let Some(start) = self.start.take() else { return };
        let (sandboxes, live) = (Arc::clone(&self.sandboxes), self.live.take());
        let over = move |sandboxes: &Arc<Sandboxes>| {
            sandboxes.state.lock().pool.start_failed(start);
            sandboxes.serve();
        };
        match (live, tokio::runtime::Handle::try_current()) {
            (Some(live), Ok(runtime)) => drop(runtime.spawn(async move {
                live.end().await;
                sandboxes.state.lock().alive.remove(&live.id);
                over(&sandboxes);
            })),
            // Without a runtime everything ends: the engine's sandboxes die with this process.
            _ => over(&sandboxes),
        }
    }
}

/// A sandbox that only its holder may use. If it is neither given back nor ended, dropping the lease ends it.
pub(crate) struct Lease {
    sandboxes: Arc<Sandboxes>,
    live: Option<Arc<LiveSandbox>>,
    since: Monotonic,
}

impl Lease {
    pub(super) fn new(sandboxes: &Arc<Sandboxes>, live: Arc<LiveSandbox>) -> Self {
        Self { sandboxes: Arc::clone(sandboxes), live: Some(live), since: sandboxes.now() }
    }

    /// The sandbox, while the lease is held.
    pub(crate) const fn live(&self) -> Option<&Arc<LiveSandbox>> {
        self.live.as_ref()
    }

    /// Gives the sandbox to the next invocation, unless it has ended or the pool is closed. `ran`: an invocation ran in it.
    pub(crate) async fn give_back(mut self, ran: bool) {
        let Some(live) = self.live.take() else { return };
        live.rest(self.sandboxes.freeze_grace);
        let now = self.sandboxes.now();
        let took = ran.then(|| now.since(self.since));
        let (refused, done) = {
            let mut state = self.sandboxes.state.lock();
            // A sandbox that ended just now was not idle when `watch` noticed that.
            let refused = if live.runtime.has_ended() {
                Some(Arc::clone(&live))
            } else {
                state.pool.give_back(Arc::clone(&live), took, now)
            };
            // It may have been frozen before the pool had it back.
            if let Some(held) = live.held() {
                state.pool.rests(&live, held);
            }
            // Under the same lock: an invocation that comes now is behind those that wait.
            (refused, self.sandboxes.commands(&mut state, now))
        };
        self.sandboxes.carry_out(done);
        if let Some(live) = refused {
            end(&self.sandboxes, live).await;
        }
    }

    /// Ends the sandbox; when this returns, nothing is left of it.
    pub(crate) async fn end(mut self) {
        if let Some(live) = self.live.take() {
            end(&self.sandboxes, live).await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Without a runtime everything ends: the engine's sandboxes die with this process.
        if let (Some(live), Ok(runtime)) = (self.live.take(), tokio::runtime::Handle::try_current()) {
            let sandboxes = Arc::clone(&self.sandboxes);
            runtime.spawn(async move { end(&sandboxes, live).await });
        }
    }
}

async fn end(sandboxes: &Arc<Sandboxes>, live: Arc<LiveSandbox>) {
    live.end().await;
    {
        let mut state = sandboxes.state.lock();
        state.alive.remove(&live.id);
        state.pool.gone(&live);
    }
    sandboxes.serve();
}
