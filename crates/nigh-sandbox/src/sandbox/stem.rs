//! Pre-warmed sandboxes: complete but for the function's code, with a runtime waiting inside. This file makes one from
//! a blank sandbox, and turns it into a function's sandbox.

use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use nigh_schedule::activation::{SandboxStart, Steps};
use nigh_schedule::memory::grant::Grant;

use super::as_seen_outside::{names, own_folders, pairs};
use super::blank::{BlankSandbox, LaunchedSandbox};
use super::factory::SandboxFactory;
use super::late_mount::MountNamespace;
use super::launch::{InitMessage, IsolationLevel, Launch, Order};
use super::processes::{SandboxProcesses, next, unexpected};
use super::step_failure::{StepFailure, in_time};
use super::{PrewarmedSpec, SandboxSpec};

/// The most bytes read of the output of a pre-warmed sandbox that failed.
const LAST_WORDS_BYTES: usize = 16 << 10;

/// A pre-warmed sandbox. It belongs to no function and becomes the sandbox of one only. Dropping it ends it.
#[derive(Debug)]
pub struct PrewarmedSandbox {
    /// The sandbox; the function's folders are mounted in it later.
    pub(super) blank: Box<BlankSandbox>,
    pub(super) said: String,
    pub(super) pids_max: u32,
}

impl PrewarmedSandbox {
    /// Whether the runtime inside has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.blank.has_ended()
    }

    /// What the runtime reported when it was ready: the modules that it lacks, and why. Empty if it has all.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Ends the sandbox and removes its cgroup before it returns.
    #[boxed]
    pub async fn end(self) {
        self.blank.end().await;
    }
}

impl SandboxFactory {
    /// Why no pre-warmed sandboxes can be made; none if they can.
    pub(super) fn no_prewarmed(&self) -> Option<&'static str> {
        match self.level() {
            IsolationLevel::UserAndNamespaces { .. } | IsolationLevel::Container { .. } => None,
            _ => Some("pre-warmed sandboxes need Nigh to run as root, with namespaces"),
        }
    }

    /// Makes a pre-warmed sandbox. Its function has the same limit of processes.
    pub(super) async fn warm(&self, spec: &PrewarmedSpec) -> Result<PrewarmedSandbox, StepFailure> {
        let BlankSandbox { mut processes, held, inside } = self.blank().await?;
        held.bound(Grant::full(spec.memory), spec.pids_max)?;
        if let Some(inside) = inside.clone() {
            self.move_in(inside, held.lease()?, Vec::new(), &spec.runtime_folders, spec.tmp.bytes()).await?;
        }
        let order = Launch {
            command: spec.command.clone(),
            environment: pairs(&spec.environment),
            code: None,
            layers: None,
            runtime_folders: names(&spec.runtime_folders),
            texts: Vec::new(),
            tmp_bytes: spec.tmp.bytes(),
            processes_max: self.processes_max(spec.pids_max),
            filter: self.filter,
        };
        let warmed = in_time("warm it", processes.warm(order)).await;
        let (namespace, said) = warmed.map_err(|failed| processes.with_last_line(failed))?;
        let inside = inside.or(namespace);
        Ok(PrewarmedSandbox {
            blank: Box::new(BlankSandbox { processes, held, inside }),
            said,
            pids_max: spec.pids_max,
        })
    }

    /// Turns `stem` into the sandbox of a function.
    pub(super) async fn adopt(
        &self,
        stem: PrewarmedSandbox,
        spec: &SandboxSpec,
    ) -> Result<LaunchedSandbox, StepFailure> {
        let wanted = Instant::now();
        let PrewarmedSandbox { blank, said: _, pids_max } = stem;
        let BlankSandbox { processes, held, inside } = *blank;
        if pids_max != spec.pids_max {
            return Err(StepFailure::at("take a pre-warmed sandbox", "it was made with another limit of processes"));
        }
        held.bound(spec.grant, spec.pids_max)?;
        let inside = inside.ok_or_else(|| StepFailure::at("take a pre-warmed sandbox", "its files are not known"))?;
        self.move_in(inside, held.lease()?, own_folders(spec), &[], spec.tmp.bytes()).await?;
        let mount = wanted.elapsed();
        // The sandbox's root is complete, so the init uses only the command and the environment.
        let launch = self.launch(spec, held.lease()?);
        let processes = in_time("start it", processes.launch(launch)).await?;
        let launch = wanted.elapsed() - mount;
        held.made(processes, Steps { start: SandboxStart::Prewarmed, walls: Duration::ZERO, mount, launch })
    }
}

impl SandboxProcesses<()> {
    /// Tells the init to start the runtime and waits until it is ready. Returns the mount namespace, if the init has
    /// built the root, and the runtime's report.
    async fn warm(&mut self, order: Launch) -> Result<(Option<MountNamespace>, String), StepFailure> {
        self.order(&Order::Warm(order)).await?;
        match next(&mut self.control).await? {
            InitMessage::Warmed { said } => {
                let namespace = self.control.take_descriptors().pop().map(MountNamespace::of_init);
                Ok((namespace, said))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Adds the last line that the runtime printed: it may say why it failed.
    fn with_last_line(&self, failed: StepFailure) -> StepFailure {
        let mut printed = [0; LAST_WORDS_BYTES];
        let length = self.output.try_read(&mut printed).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed[..length]);
        match printed.lines().last() {
            Some(line) => StepFailure { reason: format!("{}; it printed: {line}", failed.reason), ..failed },
            None => failed,
        }
    }
}
