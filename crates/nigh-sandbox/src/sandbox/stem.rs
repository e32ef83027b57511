//! A stem, from outside: a sandbox that stands but for the function's code, with a runtime waiting in it; how it is made
//! of a blank, and how it becomes a function's.

use std::time::{Duration, Instant};

use nigh_schedule::activation::{SandboxStart, Steps};
use nigh_schedule::memory::grant::Grant;

use super::blank::{
    BlankSandbox, LaunchedSandbox, Maker, SandboxProcesses, StepFailure, in_time, names, next, own_folders, pairs,
    unexpected,
};
use super::late_mount::MountNamespace;
use super::launch::{InitMessage, Launch, Order, Walls};
use super::{SandboxSpec, StemSpec};

/// How much is read of what a stem printed that failed.
const LAST_WORDS_BYTES: usize = 16 << 10;
/// A stem. It belongs to nobody and becomes one function's only; dropping it ends it.
#[derive(Debug)]
pub struct Stem {
    /// Its function's folders move in from outside.
    pub(super) blank: Box<BlankSandbox>,
    pub(super) said: String,
    pub(super) pids_max: u32,
}

impl Stem {
    /// True if nothing waits in it any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.blank.has_ended()
    }

    /// What its runtime said when it was ready: the modules that it has not, and why. Empty: it has all.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Ends it; when this returns nothing is left of it.
    pub async fn end(self) {
        self.blank.end().await;
    }
}

impl Maker {
    /// Why it makes no stems, if it makes none.
    pub(super) fn no_stems(&self) -> Option<&'static str> {
        match self.walls() {
            Walls::UserAndNamespaces { .. } | Walls::Container { .. } => None,
            _ => Some("moving code into a sandbox that stands needs Nigh to be root, with namespaces"),
        }
    }

    /// Makes a stem. Functions have the same processes' limit as it.
    pub(super) async fn warm(&self, spec: &StemSpec) -> Result<Stem, StepFailure> {
        let BlankSandbox { mut begun, held, inside } = self.blank().await?;
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
        let warmed = in_time("warm it", begun.warm(order)).await;
        let (namespace, said) = warmed.map_err(|failed| begun.with_last_line(failed))?;
        let inside = inside.or(namespace);
        Ok(Stem { blank: Box::new(BlankSandbox { begun, held, inside }), said, pids_max: spec.pids_max })
    }

    /// Makes the sandbox of a function of `stem`.
    pub(super) async fn adopt(&self, stem: Stem, spec: &SandboxSpec) -> Result<LaunchedSandbox, StepFailure> {
        let wanted = Instant::now();
        let Stem { blank, said: _, pids_max } = stem;
        let BlankSandbox { begun, held, inside } = *blank;
        if pids_max != spec.pids_max {
            return Err(StepFailure::at("take a stem", "it was made for another number of processes"));
        }
        held.bound(spec.grant, spec.pids_max)?;
        let inside = inside.ok_or_else(|| StepFailure::at("take a stem", "its files are not known"))?;
        self.move_in(inside, held.lease()?, own_folders(spec), &[], spec.tmp.bytes()).await?;
        let mount = wanted.elapsed();
        // Its root stands: of all this it hears the command and the environment only.
        let launch = self.launch(spec, held.lease()?);
        let begun = in_time("start it", begun.launch(launch)).await?;
        let launch = wanted.elapsed() - mount;
        held.made(begun, Steps { start: SandboxStart::Prewarmed, walls: Duration::ZERO, mount, launch })
    }
}

impl SandboxProcesses<()> {
    /// Has the init start a stem and waits until it is ready: where its files are, if the init has built the root, and
    /// what the stem says.
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

    /// What the stem printed last may say why it failed.
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
