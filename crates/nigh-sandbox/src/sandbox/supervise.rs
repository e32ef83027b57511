//! A running sandbox: a task that waits for its end and cleans up, and the handle for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use nigh_llc::resctrl::Members;
use nigh_schedule::memory::grant::SandboxMemory;
use nigh_terms::SandboxId;
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::blank::Lease;
use super::control::Control;
use super::launch::{CONTINUE, InitMessage, STOP};
use super::log_lines::Output;
use super::outbound::OutboundLink;
use super::{Sandbox, SandboxEnd, SandboxError};
use crate::cgroup::Group;

/// The time that the keeper has to end a sandbox. Then its processes are killed from outside.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// The time to read the last lines after the last process has ended.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);
/// The time that processes have to stop without a freezer.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// The most messages to the init that wait. Each caller of freeze or thaw sends one at a time.
const WORDS_MAX: usize = 16;
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

/// The parts of a started sandbox.
pub(super) struct SupervisedSandbox {
    pub(super) id: SandboxId,
    pub(super) control: Control,
    pub(super) keeper: Child,
    pub(super) output: Output,
    pub(super) group: Group,
    pub(super) lease: Lease,
    /// The sandbox's outbound network. None if it has none.
    pub(super) network: Option<OutboundLink>,
}

/// A running sandbox, isolated by runc or by Nigh.
pub(super) struct LocalSandbox {
    id: SandboxId,
    group: Arc<Group>,
    output: Arc<Output>,
    stop: CancellationToken,
    words: mpsc::Sender<u8>,
    stopped: watch::Receiver<bool>,
    end: watch::Receiver<Option<SandboxEnd>>,
    cleared: watch::Receiver<bool>,
    /// The out-of-memory kills up to the start of the last invocation.
    oom_kills: Arc<AtomicU64>,
}

impl LocalSandbox {
    /// Starts the supervision.
    pub(super) fn supervise(running: SupervisedSandbox) -> Self {
        let SupervisedSandbox { id, control, keeper, output, group, lease, network } = running;
        let output = Arc::new(output);
        let printed = Arc::clone(&output);
        let passed_on = tokio::spawn(async move { printed.pass_on().await });
        let group = Arc::new(group);
        let stop = CancellationToken::new();
        let (words, to_say) = mpsc::channel(WORDS_MAX);
        let (says_stopped, stopped) = watch::channel(false);
        let (says_end, end) = watch::channel(None);
        let (says_cleared, cleared) = watch::channel(false);
        let oom_kills = Arc::new(AtomicU64::new(0));
        let watcher = Watcher {
            control,
            to_say,
            stopped: says_stopped,
            stop: stop.clone(),
            group: Arc::clone(&group),
            oom_kills: Arc::clone(&oom_kills),
            network,
        };
        let own_group = Arc::clone(&group);
        tokio::spawn(async move {
            let (end, mut keeper, control, network) = watcher.watch(keeper).await;
            if let Some(network) = network {
                // A container runtime deletes only an empty cgroup.
                network.end().await;
            }
            // The keeper of a container has waited for this, and lets the runtime delete the container now.
            control.end();
            let _late_lines_are_lost = timeout(OUTPUT_PATIENCE, passed_on).await;
            says_end.send_replace(Some(end));
            if timeout(END_PATIENCE, keeper.wait()).await.is_err() {
                let _gone = keeper.start_kill();
            }
            let removed = tokio::task::spawn_blocking(move || own_group.end()).await;
            if !removed.unwrap_or(false) {
                tracing::warn!(sandbox = %id, "its cgroup is still busy; the next sweep removes it");
            }
            drop(lease);
            says_cleared.send_replace(true);
        });
        Self { id, group, output, stop, words, stopped, end, cleared, oom_kills }
    }

    /// Tells the init to stop or continue its processes.
    async fn say(&self, word: u8) -> Result<(), SandboxError> {
        let ended = SandboxError::Ended(self.id);
        if self.words.send(word).await.is_err() {
            return Err(ended);
        }
        let wanted = word == STOP;
        let mut stopped = self.stopped.clone();
        match timeout(STOP_PATIENCE, stopped.wait_for(|now| *now == wanted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ended),
            Err(_) => Err(SandboxError::Io {
                what: "stop or continue its processes".to_owned(),
                source: std::io::ErrorKind::TimedOut.into(),
            }),
        }
    }

    fn frozen_or_ended(&self, outcome: Result<(), crate::cgroup::CgroupError>) -> Result<(), SandboxError> {
        match outcome {
            // An ended sandbox has no group.
            Err(_) if self.stop.is_cancelled() || self.end.borrow().is_some() => Err(SandboxError::Ended(self.id)),
            outcome => outcome.map_err(|error| SandboxError::Io { what: error.to_string(), source: error.source }),
        }
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn id(&self) -> SandboxId {
        self.id
    }

    fn memory(&self) -> &dyn SandboxMemory {
        self.group.memory()
    }

    fn tasks(&self) -> Option<Members> {
        self.group.folders().first().cloned().map(Members::Cgroup)
    }

    fn begin_run(&self) {
        if let Ok(kills) = self.group.memory().oom_kills() {
            self.oom_kills.store(kills, Ordering::Release);
        }
    }

    async fn freeze(&self) -> Result<(), SandboxError> {
        if self.group.has_freezer() { self.frozen_or_ended(self.group.freeze().await) } else { self.say(STOP).await }
    }

    async fn thaw(&self) -> Result<(), SandboxError> {
        if self.group.has_freezer() { self.frozen_or_ended(self.group.thaw()) } else { self.say(CONTINUE).await }
    }

    async fn flush_log(&self) {
        self.output.drain();
    }

    async fn destroy(&self) {
        self.stop.cancel();
        let mut cleared = self.cleared.clone();
        // Fails only if the async runtime is gone.
        let _runtime_gone = cleared.wait_for(|cleared| *cleared).await;
    }

    async fn ended(&self) -> SandboxEnd {
        let mut end = self.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(SandboxEnd::Destroyed),
            Err(_runtime_gone) => SandboxEnd::Destroyed,
        }
    }
}

impl Drop for LocalSandbox {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Reads the init's messages until the sandbox has ended.
struct Watcher {
    control: Control,
    to_say: mpsc::Receiver<u8>,
    stopped: watch::Sender<bool>,
    stop: CancellationToken,
    group: Arc<Group>,
    oom_kills: Arc<AtomicU64>,
    network: Option<OutboundLink>,
}

/// Returns when the outbound network of the sandbox has ended. Never returns without one.
async fn lost(network: &mut Option<OutboundLink>) {
    match network {
        Some(network) => network.lost().await,
        None => std::future::pending().await,
    }
}

impl Watcher {
    async fn watch(mut self, mut keeper: Child) -> (SandboxEnd, Child, Control, Option<OutboundLink>) {
        let mut end = None;
        let mut stopping = false;
        loop {
            tokio::select! {
                report = self.control.report() => match report {
                    Ok(Some(InitMessage::Exited(code))) => drop(end.get_or_insert(SandboxEnd::Exited(code))),
                    Ok(Some(InitMessage::Signalled(signal))) => drop(end.get_or_insert(SandboxEnd::Signalled(signal))),
                    Ok(Some(InitMessage::Stopped)) => drop(self.stopped.send_replace(true)),
                    Ok(Some(InitMessage::Continued)) => drop(self.stopped.send_replace(false)),
                    Ok(Some(
                        other @ (InitMessage::Ready
                        | InitMessage::Contained { .. }
                        | InitMessage::Warmed { .. }
                        | InitMessage::Running
                        | InitMessage::Failed { .. }
                        | InitMessage::NotExecuted { .. }),
                    )) => {
                        tracing::debug!(?other, "a late report of a sandbox");
                    }
                    // The init and all processes have ended; the keeper sends nothing more.
                    Ok(Some(InitMessage::Over) | None) | Err(_) => break,
                },
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    end.get_or_insert(SandboxEnd::Destroyed);
                    self.control.end();
                }
                () = lost(&mut self.network), if !stopping => {
                    tracing::warn!("a sandbox has lost its outbound network and is ended");
                    stopping = true;
                    self.control.end();
                }
                () = sleep(END_PATIENCE), if stopping => {
                    // The keeper itself was stopped or killed. The group kills the other processes.
                    let _gone = keeper.start_kill();
                    let group = Arc::clone(&self.group);
                    let _ended = tokio::task::spawn_blocking(move || group.end()).await;
                    break;
                }
                Some(word) = self.to_say.recv(), if !stopping => {
                    // The write fails only if the sandbox has ended; the next report says so.
                    let _ended = self.control.say(word);
                }
            }
        }
        let killed = matches!(end, None | Some(SandboxEnd::Signalled(SIGKILL)));
        let earlier = self.oom_kills.load(Ordering::Acquire);
        // If `end` is none, the init itself was killed, which no process inside can do.
        let end = match self.group.memory().oom_kills() {
            Ok(kills) if killed && kills > earlier => SandboxEnd::OutOfMemory,
            _ => end.unwrap_or(SandboxEnd::Signalled(SIGKILL)),
        };
        (end, keeper, self.control, self.network)
    }
}
