//! The sandbox engine of this machine, with the strongest isolation that is possible here: by runc, or by Nigh itself.
//!
//! A trial at the start decides. After that both work the same: one init, one stock of blank sandboxes, one
//! supervision.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use nigh_functions::function_network::FunctionNetwork;
use nigh_terms::SandboxId;
use serde::{Deserialize, Serialize};

use super::blank::LaunchedSandbox;
use super::control::Listeners;
use super::factory::SandboxFactory;
use super::isolation::Isolation;
use super::log_lines::Output;
use super::outbound::{OutboundNetwork, OutboundSettings};
use super::processes::SandboxProcesses;
use super::slots::DEFAULT_UIDS;
use super::step_failure::StepFailure;
use super::supervise::{LocalSandbox, SupervisedSandbox};
use super::{PrewarmedSandbox, PrewarmedSpec, SandboxEngine, SandboxError, SandboxSpec, StartedSandbox, process, runc};
use crate::cgroup::cpuset::{Cpusets, SandboxCpus};

/// The program of the sandboxes' init; it is installed with Nigh's own program.
const INIT: &str = "nigh-sandbox";
/// The default number of blank sandboxes kept ready. One is two sleeping processes of about a megabyte together.
const DEFAULT_BLANKS: usize = 2;
/// The parent of folders that last until a reboot (Filesystem Hierarchy Standard, 3.15).
const RUNTIME_FOLDER: &str = "/run";

/// What sets up the isolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// runc starts the sandboxes if it works, otherwise Nigh itself.
    #[default]
    Auto,
    /// Only runc starts the sandboxes.
    Runc,
    /// Nigh itself starts the sandboxes.
    Process,
}

/// Why an engine without the setting provides no outbound network.
pub(super) const NOT_TOLD: &str = "the engine is not told to give any";

/// The settings of the engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// What sets up the isolation.
    pub choice: EngineChoice,
    /// Distinguishes this Nigh from others on the machine. The same at each start; letters and digits only.
    pub instance: String,
    /// The program `nigh-sandbox`; with none, the one beside the running program.
    pub init: Option<PathBuf>,
    /// The program runc; with none, the one in PATH.
    pub runc: Option<PathBuf>,
    /// The parent of runc's working folder.
    pub runtime_folder: PathBuf,
    /// The users that sandboxes run as if Nigh is root. With runc, half of them are the roots of user namespaces.
    pub uids: Range<u32>,
    /// Run functions even without any isolation.
    pub trust_functions: bool,
    /// Nigh's state folder, for the warning that it is not protected.
    pub state: PathBuf,
    /// The number of blank sandboxes kept ready. A start from one skips the kernel's slowest step.
    pub blanks: usize,
    /// Tell functions of the fast path, which the node serves.
    pub fast_path: bool,
    /// Give each sandbox a cpuset, which can confine it to processors.
    pub cpusets: Cpusets,
    /// Settings of the outbound network; with none, sandboxes have no outbound network.
    pub outbound: Option<OutboundSettings>,
}

impl EngineSettings {
    /// The usual settings.
    #[must_use]
    pub fn new(instance: impl Into<String>, state: impl Into<PathBuf>) -> Self {
        let (instance, state) = (instance.into(), state.into());
        Self {
            choice: EngineChoice::Auto,
            instance,
            init: None,
            runc: None,
            runtime_folder: RUNTIME_FOLDER.into(),
            uids: DEFAULT_UIDS,
            trust_functions: false,
            state,
            blanks: DEFAULT_BLANKS,
            fast_path: false,
            cpusets: Cpusets::Unused,
            outbound: None,
        }
    }
}

/// Makes sandboxes on this machine.
#[derive(Debug)]
pub struct LocalEngine {
    pub(super) kind: &'static str,
    pub(super) isolation: Isolation,
    pub(super) factory: Arc<SandboxFactory>,
    pub(super) cpus: Result<SandboxCpus, String>,
    pub(super) outbound: Result<OutboundNetwork, String>,
}

impl LocalEngine {
    /// Tries which isolation is possible and takes the strongest.
    ///
    /// # Errors
    /// `Unsupported` if no isolation is possible and functions are not trusted, if runc is required and does not work,
    /// or if `nigh-sandbox` is missing.
    #[boxed]
    pub async fn open(settings: EngineSettings) -> Result<Self, SandboxError> {
        let init = match &settings.init {
            Some(init) => init.clone(),
            None => find_init()?,
        };
        let mut engine = match settings.choice {
            EngineChoice::Process => process::open(&settings, init, None).await?,
            EngineChoice::Runc => runc::open(&settings, init).await.map_err(|why| {
                SandboxError::Unsupported(format!("functions.engine is \"runc\", and {why}; \"auto\" takes what works"))
            })?,
            EngineChoice::Auto => match runc::open(&settings, init.clone()).await {
                Ok(engine) => engine,
                Err(why) => process::open(&settings, init, Some(format!("runc: {why}"))).await?,
            },
        };
        if let Some(outbound) = &settings.outbound {
            engine.outbound = OutboundNetwork::open(outbound, engine.factory.level()).await;
        }
        engine.factory.restock();
        Ok(engine)
    }

    /// Ends the blank sandboxes and makes no more. If no other sandbox lives, Nigh's cgroups are removed too.
    #[boxed]
    pub async fn close(&self) {
        self.factory.close().await;
    }

    /// The isolation of its sandboxes.
    #[must_use]
    pub fn probe(&self) -> &Isolation {
        &self.isolation
    }

    /// Can confine a sandbox to processors by its cpuset.
    ///
    /// # Errors
    /// Why no sandbox can be confined.
    pub fn sandbox_cpus(&self) -> Result<SandboxCpus, String> {
        self.cpus.clone()
    }
}

#[async_trait]
impl SandboxEngine for LocalEngine {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn isolation(&self) -> String {
        self.isolation.to_string()
    }

    fn trouble(&self) -> Option<String> {
        self.factory.trouble()
    }

    fn outbound(&self) -> Result<String, String> {
        self.outbound.as_ref().map(OutboundNetwork::line).map_err(Clone::clone)
    }

    async fn start(&self, spec: SandboxSpec) -> Result<StartedSandbox, SandboxError> {
        let id = spec.id;
        if spec.command.is_empty() {
            return Err(StepFailure::at("start its command", "there is none").into_error(id));
        }
        let outbound = match spec.network {
            FunctionNetwork::None => None,
            FunctionNetwork::Outbound => match &self.outbound {
                Ok(outbound) => Some(outbound),
                Err(why) => return Err(StepFailure::at("give it a way out to the network", why).into_error(id)),
            },
        };
        let outcome = self.factory.make(&spec, outbound).await;
        self.factory.restock();
        match outcome {
            Ok(made) => Ok(started(made, spec)),
            Err(failed) => Err(failed.into_start_error(&spec)),
        }
    }

    fn makes_prewarmed(&self) -> Result<(), String> {
        self.factory.no_prewarmed().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    async fn warm(&self, spec: &PrewarmedSpec) -> Result<PrewarmedSandbox, SandboxError> {
        self.makes_prewarmed().map_err(SandboxError::Unsupported)?;
        self.factory.warm(spec).await.map_err(|failed| failed.into_error(SandboxId::random()))
    }

    async fn start_from(&self, stem: PrewarmedSandbox, spec: SandboxSpec) -> Result<StartedSandbox, SandboxError> {
        if spec.network != FunctionNetwork::None {
            // A pre-warmed runtime may have read an empty list of name servers already.
            stem.end().await;
            return self.start(spec).await;
        }
        match self.factory.adopt(stem, &spec).await {
            Ok(made) => Ok(started(made, spec)),
            Err(failed) => {
                let why = failed.sentence();
                tracing::info!(sandbox = %spec.id, why, "a prewarmed sandbox is not taken; another is made");
                self.start(spec).await
            }
        }
    }

    async fn sweep(&self) -> Result<usize, SandboxError> {
        let factory = Arc::clone(&self.factory);
        blocking(move || factory.sweep()).await
    }
}

/// Starts the supervision of a new sandbox.
fn started(made: LaunchedSandbox, spec: SandboxSpec) -> StartedSandbox {
    let LaunchedSandbox { processes, group, lease, network, steps } = made;
    let SandboxProcesses { keeper, control, output, listeners, process: _, network: _ } = processes;
    let Listeners { runtime, data, fast } = listeners;
    let output = Output::new(output, spec.log);
    let running = SupervisedSandbox { id: spec.id, control, keeper, output, group, lease, network };
    StartedSandbox { sandbox: Arc::new(LocalSandbox::supervise(running)), runtime, data, fast, steps }
}

/// The init that is installed with the running program.
fn find_init() -> Result<PathBuf, SandboxError> {
    let this = std::env::current_exe()
        .map_err(|source| SandboxError::Io { what: "find the running program".to_owned(), source })?;
    nigh_terms::companion_programs(&this, INIT).find(|init| init.is_file()).ok_or_else(|| {
        SandboxError::Unsupported(format!(
            "the program {INIT} is missing; install it beside {}, or name it in the settings",
            this.display()
        ))
    })
}

/// Runs `work`, which blocks for milliseconds, outside the async threads.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SandboxError::Io { what: "run a blocking step".to_owned(), source: io::Error::other(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(choice: EngineChoice) -> EngineSettings {
        let init = Some("/absent/init".into());
        EngineSettings { choice, init, runc: Some("/absent/runc".into()), ..EngineSettings::new("x", "/srv/nigh") }
    }

    #[tokio::test]
    async fn a_missing_init_is_named() {
        let error = LocalEngine::open(settings(EngineChoice::Process)).await.unwrap_err();
        assert!(error.to_string().contains("/absent/init"), "{error}");
    }

    #[tokio::test]
    async fn a_demanded_runc_that_is_not_there_is_named_and_nothing_else_is_taken() {
        let error = LocalEngine::open(settings(EngineChoice::Runc)).await.unwrap_err();
        assert!(matches!(error, SandboxError::Unsupported(_)), "{error}");
        // Without root, the error names that first.
        assert!(error.to_string().contains("/absent/runc") || error.to_string().contains("root"), "{error}");
    }
}
