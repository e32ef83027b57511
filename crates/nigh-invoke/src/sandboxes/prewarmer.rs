//! Keeps the pre-warmed sandboxes (stems) that `prewarm` asks for: makes missing ones in the background and ends those not
//! wanted. It makes a few at a time, and none while invocations wait for room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use nigh_functions::function::{FunctionSource, Runtime};
use nigh_sandbox::runtime_command::{RuntimeSettings, prewarm_command};
use nigh_sandbox::sandbox::{PrewarmedSandbox, PrewarmedSpec, SandboxEngine};
use nigh_schedule::prewarm::{PREWARMED_MEMORY, PrewarmSettings, pause};
use nigh_terms::{ByteSize, Clock, Monotonic};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::admission::{PrewarmedRoom, Sandboxes, SparePrewarmed};
use super::stem_stock::PendingPrewarmed;

/// How often the prewarmer checks whether there are enough pre-warmed sandboxes; it also checks when one is taken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The default size of a function's /tmp (Lambda: 512 MB); another size is set when a function takes the sandbox.
const TMP: ByteSize = ByteSize::mib(512);

/// The pre-warmed sandboxes of one runtime, as the status shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimePrewarmed {
    /// The runtime.
    pub runtime: String,
    /// How many are ready.
    pub ready: usize,
    /// How many are being made.
    pub coming: usize,
    /// How many there should be.
    pub wanted: usize,
    /// Why the last one could not be made, or which modules it lacks.
    pub trouble: Option<String>,
}

/// The result of making the last pre-warmed sandbox of a runtime.
#[derive(Clone, Debug, Default)]
struct LastAttempt {
    failures: u32,
    not_before: Monotonic,
    trouble: Option<String>,
}

/// Keeps pre-warmed sandboxes.
pub(crate) struct Prewarmer {
    settings: PrewarmSettings,
    runtime: RuntimeSettings,
    pids_max: u32,
    /// How many sandboxes are made at once: half the number of processors; the other half is for invocations.
    at_once: usize,
    engine: Arc<dyn SandboxEngine>,
    functions: Arc<dyn FunctionSource>,
    sandboxes: Arc<Sandboxes>,
    clock: Arc<dyn Clock>,
    last: Mutex<BTreeMap<Runtime, LastAttempt>>,
}

/// What a prewarmer needs.
pub(crate) struct PrewarmerParts {
    pub(crate) settings: PrewarmSettings,
    pub(crate) runtime: RuntimeSettings,
    pub(crate) pids_max: u32,
    pub(crate) engine: Arc<dyn SandboxEngine>,
    pub(crate) functions: Arc<dyn FunctionSource>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Prewarmer {
    pub(crate) fn new(parts: PrewarmerParts) -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Self {
            settings: parts.settings,
            runtime: parts.runtime,
            pids_max: parts.pids_max,
            at_once: (processors / 2).max(1),
            engine: parts.engine,
            functions: parts.functions,
            sandboxes: parts.sandboxes,
            clock: parts.clock,
            last: Mutex::default(),
        })
    }

    /// Starts the task that keeps the sandboxes, until the prewarmer is dropped. Starts of sandboxes run in `tasks`.
    pub(crate) fn keep_going(self: &Arc<Self>, tasks: &TaskTracker) {
        let (this, tasks) = (Arc::downgrade(self), tasks.clone());
        let changed = self.sandboxes.stems_changed();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(LOOK_EVERY);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = tick.tick() => {}
                    () = changed.notified() => {}
                }
                let Some(this) = this.upgrade() else { return };
                this.look(&tasks).await;
            }
        });
    }

    /// The runtimes of deployed functions that can be pre-warmed.
    fn usable(&self) -> BTreeSet<Runtime> {
        let mut runtimes = self.functions.runtimes();
        runtimes.retain(|runtime| prewarm_command(runtime, &self.runtime, &[]).is_some());
        runtimes
    }

    async fn look(self: &Arc<Self>, tasks: &TaskTracker) {
        let (missing, surplus) = self.sandboxes.plan_prewarmed(&self.usable());
        join_all(surplus.into_iter().map(SparePrewarmed::end)).await;
        let now = self.clock.monotonic();
        for runtime in missing {
            if self.last.lock().get(&runtime).is_some_and(|last| now < last.not_before) {
                continue;
            }
            let Some((room, coming)) = self.sandboxes.room_for_prewarmed(&runtime, self.at_once) else { return };
            let this = Arc::clone(self);
            tasks.spawn(async move { this.make(&coming, room).await });
        }
    }

    async fn make(&self, coming: &PendingPrewarmed, room: PrewarmedRoom) {
        let runtime = &coming.runtime;
        let made = tokio::select! {
            made = self.warm(runtime) => Some(made),
            () = coming.cancel.cancelled() => None,
        };
        let stem = match made {
            Some(Ok(stem)) => {
                let trouble = Some(stem.said()).filter(|said| !said.is_empty()).map(str::to_owned);
                self.last.lock().insert(runtime.clone(), LastAttempt { trouble, ..LastAttempt::default() });
                Some(stem)
            }
            Some(Err(reason)) => {
                let mut last = self.last.lock();
                let last = last.entry(runtime.clone()).or_default();
                if last.failures == 0 {
                    tracing::warn!(%runtime, reason, "sandboxes cannot be prewarmed; cold starts take their full time");
                }
                last.failures += 1;
                last.not_before = self.clock.monotonic().after(pause(last.failures));
                last.trouble = Some(reason);
                None
            }
            None => None,
        };
        if let Some(unwanted) = room.filled(coming, stem) {
            unwanted.end().await;
        }
        // Another sandbox may be missing.
        self.sandboxes.stems_changed().notify_one();
    }

    async fn warm(&self, runtime: &Runtime) -> Result<PrewarmedSandbox, String> {
        let command = prewarm_command(runtime, &self.runtime, &self.settings.imports);
        let command = command.ok_or_else(|| format!("{runtime} is not installed"))?;
        let spec = PrewarmedSpec {
            command: command.command,
            environment: command.environment,
            runtime_folders: command.folders,
            memory: PREWARMED_MEMORY,
            tmp: TMP,
            pids_max: self.pids_max,
        };
        self.engine.warm(&spec).await.map_err(|error| error.to_string())
    }

    /// The pre-warmed sandboxes by runtime.
    pub(crate) fn stems(&self) -> Vec<RuntimePrewarmed> {
        let counts = self.sandboxes.count_prewarmed(&self.usable());
        let last = self.last.lock();
        let shown = counts.into_iter().map(|(runtime, count)| RuntimePrewarmed {
            ready: count.ready,
            coming: count.coming,
            wanted: count.wanted,
            trouble: last.get(&runtime).and_then(|last| last.trouble.clone()),
            runtime: runtime.to_string(),
        });
        shown.collect()
    }
}
