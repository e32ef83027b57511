//! A sandbox with all that belongs to it: its process, its key, its two doors, its log, and whether it is frozen.
//!
//! It knows nothing of other sandboxes; the pool decides which invocation gets it.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use nigh_engine::AccessKeys;
use nigh_functions::function::Function;
use nigh_sandbox::log_capture::LogCapture;
use nigh_sandbox::runtime_api::RuntimeApi;
use nigh_sandbox::sandbox::{Sandbox, SandboxEnd, SandboxError};
use nigh_terms::{AccessKeyId, ByteSize, InvocationId, SandboxId, Token};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cold_start::Init;
use crate::invocation::gate::GatePass;
use crate::node_memory::MemoryShare;

/// How long commits under way may delay the end of their invocation. The store decides how long they take; after this time the
/// record says that some were still under way.
pub(super) const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// A sandbox's access key, revoked when this is dropped.
pub(crate) struct SandboxKey {
    keys: AccessKeys,
    id: AccessKeyId,
}

impl SandboxKey {
    pub(crate) const fn new(keys: AccessKeys, id: AccessKeyId) -> Self {
        Self { keys, id }
    }

    pub(crate) const fn id(&self) -> &AccessKeyId {
        &self.id
    }

    /// The sandbox's data calls belong to `invocation` from now on; with `None` they are refused.
    pub(crate) fn act_for(&self, invocation: Option<InvocationId>) {
        self.keys.set_invocation(&self.id, invocation);
    }

    /// Returns true when no data call of the ended invocation can have an effect any more, false after `SETTLE_WAIT`.
    pub(crate) async fn settled(&self) -> bool {
        tokio::time::timeout(SETTLE_WAIT, self.keys.settled(&self.id)).await.is_ok()
    }
}

impl Drop for SandboxKey {
    fn drop(&mut self) {
        self.keys.revoke(&self.id);
    }
}

struct Rest {
    /// False while it runs an invocation.
    is_resting: bool,
    since: Instant,
    /// A task is waiting to freeze it.
    is_watched: bool,
    /// False once freezing has failed: freezing is not tried again.
    can_freeze: bool,
}

struct StagePreparation {
    /// What was made ready, in words.
    what: String,
    at: Instant,
}

/// A sandbox that has an invocation and may still be frozen.
pub(crate) struct WakeGuard<'a> {
    sandbox: &'a dyn Sandbox,
    frozen: tokio::sync::MutexGuard<'a, bool>,
}

impl WakeGuard<'_> {
    /// Thaws it. If that fails, the sandbox must be ended.
    pub(crate) async fn thaw(mut self) -> Result<(), SandboxError> {
        if *self.frozen {
            self.sandbox.thaw().await?;
            *self.frozen = false;
        }
        Ok(())
    }
}

/// Called with the memory that a sandbox uses when it has been frozen.
pub(crate) type OnRest = Box<dyn Fn(ByteSize) + Send + Sync>;

/// A running sandbox.
pub(crate) struct LiveSandbox {
    pub(crate) id: SandboxId,
    pub(crate) function: Arc<Function>,
    pub(crate) function_arn: HeaderValue,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) runtime: RuntimeApi,
    pub(crate) log: Arc<LogCapture>,
    pub(crate) key: Arc<SandboxKey>,
    /// Cancelling this ends its doors.
    pub(crate) until: CancellationToken,
    rest: Mutex<Rest>,
    /// True if it is frozen, or may be. Locked while that changes.
    frozen: tokio::sync::Mutex<bool>,
    /// Its share of the node's memory.
    pub(crate) memory: Arc<MemoryShare>,
    /// How it was made, until its first invocation takes that; None if it was made ahead.
    pub(crate) made: Mutex<Option<Init>>,
    /// The memory that it uses while it is frozen, and who is told.
    held: Mutex<Option<ByteSize>>,
    on_rest: OnceLock<OnRest>,
    /// What was made ready for its next invocation.
    prepared: Mutex<Option<StagePreparation>>,
    /// Processes that the kernel had killed for want of memory at the last look.
    oom_kills: Mutex<u64>,
}

impl PartialEq for LiveSandbox {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for LiveSandbox {}

impl Hash for LiveSandbox {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// The parts of a sandbox.
pub(crate) struct SandboxParts {
    pub(crate) function: Arc<Function>,
    pub(crate) function_arn: HeaderValue,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) runtime: RuntimeApi,
    pub(crate) log: Arc<LogCapture>,
    pub(crate) key: Arc<SandboxKey>,
    pub(crate) until: CancellationToken,
    pub(crate) memory: MemoryShare,
}

impl LiveSandbox {
    pub(crate) fn new(parts: SandboxParts) -> Self {
        let rest = Rest { is_resting: false, since: Instant::now(), is_watched: false, can_freeze: true };
        Self {
            id: parts.sandbox.id(),
            function: parts.function,
            function_arn: parts.function_arn,
            sandbox: parts.sandbox,
            runtime: parts.runtime,
            log: parts.log,
            key: parts.key,
            until: parts.until,
            rest: Mutex::new(rest),
            frozen: tokio::sync::Mutex::new(false),
            memory: Arc::new(parts.memory),
            made: Mutex::default(),
            held: Mutex::default(),
            on_rest: OnceLock::new(),
            prepared: Mutex::default(),
            oom_kills: Mutex::new(0),
        }
    }

    /// An invocation gets the sandbox, which will not be frozen from now on. If it is frozen, it stays so until it has its memory and
    /// is thawed.
    pub(crate) async fn take_up(&self) -> WakeGuard<'_> {
        self.rest.lock().is_resting = false;
        let frozen = self.frozen.lock().await;
        *self.held.lock() = None;
        WakeGuard { sandbox: &*self.sandbox, frozen }
    }

    /// The memory that it uses, if it is frozen.
    pub(crate) fn held(&self) -> Option<ByteSize> {
        *self.held.lock()
    }

    /// Has `decide` make ready what the next invocation will need, unless it runs one. An invocation that comes meanwhile waits.
    pub(crate) async fn prepare(&self, decide: impl FnOnce() -> String) {
        let _frozen = self.frozen.lock().await;
        if self.rest.lock().is_resting {
            *self.prepared.lock() = Some(StagePreparation { what: decide(), at: Instant::now() });
        }
    }

    /// What was made ready for the invocation that begins now, in words.
    pub(crate) fn take_prepared(&self) -> Option<String> {
        self.prepared.lock().take().map(|prepared| prepared.what)
    }

    /// Takes back what was made ready, if no invocation has come for `patience`.
    pub(crate) fn forget_prepared(&self, patience: Duration) {
        // If the lock is held, its state changes, and this is called again later.
        let Ok(_frozen) = self.frozen.try_lock() else { return };
        let is_due = |prepared: &mut StagePreparation| prepared.at.elapsed() >= patience;
        if self.rest.lock().is_resting && self.prepared.lock().take_if(is_due).is_some() {
            self.memory.unprepare();
        }
    }

    /// Its invocation has ended; it is frozen after `grace` unless it gets another. Invocations in quick succession cost one sleeping
    /// task a `grace`, not one each.
    pub(crate) fn rest(self: &Arc<Self>, grace: Duration) {
        let mut rest = self.rest.lock();
        rest.is_resting = true;
        rest.since = Instant::now();
        if rest.is_watched || !rest.can_freeze {
            return;
        }
        rest.is_watched = true;
        let (this, mut due) = (Arc::clone(self), rest.since + grace);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(due).await;
                let mut rest = this.rest.lock();
                due = rest.since + grace;
                if !rest.is_resting {
                    rest.is_watched = false;
                    return;
                }
                if due <= Instant::now() {
                    rest.is_watched = false;
                    break;
                }
            }
            this.freeze().await;
        });
    }

    /// `tell` is called each time that it has been frozen. It is set once.
    pub(crate) fn on_rest(&self, tell: OnRest) {
        let _once = self.on_rest.set(tell);
    }

    /// Freezes it, unless it runs an invocation.
    pub(crate) async fn freeze(&self) {
        let mut frozen = self.frozen.lock().await;
        // An invocation that came meanwhile waits for the lock: the sandbox must not be frozen under it.
        if *frozen || !self.rest.lock().is_resting || !self.rest.lock().can_freeze {
            return;
        }
        match self.sandbox.freeze().await {
            Ok(()) => {
                *frozen = true;
                self.give_memory_back().await;
            }
            Err(SandboxError::Ended(_)) => {}
            Err(error) => {
                // Some of its processes may be frozen, or become so: it is thawed as if all were.
                *frozen = true;
                self.rest.lock().can_freeze = false;
                self.stands_with(self.function.memory);
                tracing::warn!(%error, sandbox = %self.id, "an idle sandbox cannot be frozen; its data calls are refused");
            }
        }
    }

    /// It is frozen: it keeps only the memory that it uses.
    async fn give_memory_back(&self) {
        let held = if self.memory.reclaims() {
            let memory = Arc::clone(&self.memory);
            tokio::task::spawn_blocking(move || memory.rest()).await
        } else {
            Ok(self.memory.rest())
        };
        match held {
            Ok(held) => self.stands_with(held),
            Err(error) => {
                tracing::error!(%error, "the memory of an idle sandbox was not taken back");
                self.stands_with(self.function.memory);
            }
        }
    }

    /// It is idle and counts as using `held`: all that it booked, if it may not be frozen.
    fn stands_with(&self, held: ByteSize) {
        *self.held.lock() = Some(held);
        if let Some(tell) = self.on_rest.get() {
            tell(held);
        }
    }

    /// Ends `run`, its last invocation: waits for the data calls that can still have an effect. Returns what the invocation had
    /// seen, and a note if they take too long.
    pub(crate) async fn settle(&self, run: GatePass) -> (Token, Option<String>) {
        let began = Instant::now();
        let note = (!self.key.settled().await).then(|| {
            tracing::warn!(sandbox = %self.id, invocation = %run.id(), "data calls of an ended invocation are still under way");
            format!("data: writes were still under way {SETTLE_WAIT:?} after the end; they may come later")
        });
        (run.end(SETTLE_WAIT.saturating_sub(began.elapsed())).await, note)
    }

    /// How many of its processes, not counting the first, the kernel has killed for want of memory since the last call.
    pub(crate) fn new_oom_kills(&self) -> Option<u64> {
        let now = self.sandbox.memory().oom_kills().ok()?;
        let mut known = self.oom_kills.lock();
        let new = now.saturating_sub(*known);
        *known = now;
        (new > 0).then_some(new)
    }

    /// Ends it and all that belongs to it: when this returns, none of its processes is left, and its key is revoked.
    pub(crate) async fn end(&self) {
        self.key.act_for(None);
        self.runtime.end(SandboxEnd::Destroyed);
        self.until.cancel();
        self.sandbox.destroy().await;
        self.memory.release();
    }
}

#[cfg(test)]
mod tests;
