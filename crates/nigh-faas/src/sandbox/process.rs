//! The engine `process`: each sandbox a process tree of its own behind the kernel's walls, no container runtime.
//!
//! This side decides which walls can be had and takes blank sandboxes from `blank`; what happens inside is
//! `nigh-sandbox`'s. See `launch` for what they say to each other.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::blank::{Begun, Failed, Made, Maker, OWN_NETWORK, START_PATIENCE};
use super::isolation::Isolation;
use super::launch::{Launch, Prepare, Walls};
use super::log_lines::Output;
use super::slots::{DEFAULT_UIDS, probe_address};
use super::supervise::{ProcessSandbox, Running};
use super::{SandboxEngine, SandboxError, SandboxSpec, Started, Stem, StemSpec};
use crate::cgroup::CgroupHost;
use crate::cgroup::cpuset::{Cpusets, SandboxCpus};
use nigh_terms::SandboxId;

/// The name of the sandboxes' init, beside Nigh's own program.
const INIT: &str = "nigh-sandbox";
/// Blank sandboxes kept ready, unless set otherwise; one is two sleeping processes of about a megabyte together.
const DEFAULT_BLANKS: usize = 2;

/// What the engine is told.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// Tells this Nigh from others on the machine, the same at each start: letters and digits only.
    pub instance: String,
    /// The program `nigh-sandbox`; none: looked for beside the running program.
    pub init: Option<PathBuf>,
    /// The users that sandboxes run as, when Nigh is root.
    pub uids: Range<u32>,
    /// Run functions also where nothing keeps them apart.
    pub trust_functions: bool,
    /// Where Nigh keeps its state: named when it is not protected.
    pub state: PathBuf,
    /// Blank sandboxes to keep ready: a start then has the kernel's slowest step behind it.
    pub blanks: usize,
    /// Give each sandbox a cpuset, so that it can be confined to processors.
    pub cpusets: Cpusets,
}

impl ProcessSettings {
    /// The usual settings.
    #[must_use]
    pub fn new(instance: impl Into<String>, state: impl Into<PathBuf>) -> Self {
        let (instance, state) = (instance.into(), state.into());
        Self {
            instance,
            init: None,
            uids: DEFAULT_UIDS,
            trust_functions: false,
            state,
            blanks: DEFAULT_BLANKS,
            cpusets: Cpusets::Unused,
        }
    }
}

/// Makes sandboxes out of processes.
#[derive(Debug)]
pub struct ProcessEngine {
    isolation: Isolation,
    maker: Arc<Maker>,
    cpus: Result<SandboxCpus, String>,
}

impl ProcessEngine {
    /// Finds out which walls can be had, by raising them, and takes the strongest.
    ///
    /// # Errors
    /// `Unsupported` if there are none and functions are not trusted, or `nigh-sandbox` cannot be found.
    pub async fn new(settings: ProcessSettings) -> Result<Self, SandboxError> {
        let init = match &settings.init {
            Some(init) => init.clone(),
            None => find_init()?,
        };
        let (instance, cpusets) = (settings.instance.clone(), settings.cpusets);
        let cgroups = blocking(move || CgroupHost::detect(&instance, cpusets)).await?;
        let cpus = cgroups.sandbox_cpus();
        let (walls, mut refused) = probe(&init, settings.uids.start).await;
        if let Some(Walls::User { .. }) = walls {
            refused.push("own user alone: any sandbox could ask for another's input on the shared network".to_owned());
        }
        let walls = match walls {
            Some(walls) if walls.has_namespaces() || settings.trust_functions => walls,
            None if settings.trust_functions => Walls::None,
            _ => return Err(SandboxError::Unsupported(untrusted(&settings, &refused))),
        };
        let isolation = Isolation { walls, refused, controls: cgroups.controls() };
        let maker = Arc::new(Maker::new(init, walls, settings.uids, cgroups, settings.blanks));
        maker.restock();
        Ok(Self { isolation, maker, cpus })
    }

    /// What keeps its sandboxes apart.
    #[must_use]
    pub fn probe(&self) -> &Isolation {
        &self.isolation
    }

    /// The processors of its sandboxes, by which one can be confined.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn sandbox_cpus(&self) -> Result<SandboxCpus, String> {
        self.cpus.clone()
    }
}

#[async_trait]
impl SandboxEngine for ProcessEngine {
    fn kind(&self) -> &'static str {
        "process"
    }

    fn isolation(&self) -> String {
        self.isolation.to_string()
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Started, SandboxError> {
        let id = spec.id;
        if spec.command.is_empty() {
            return Err(Failed::at("start its command", "there is none").into_error(id));
        }
        let outcome = self.maker.make(&spec).await;
        self.maker.restock();
        outcome.map(|made| started(made, spec)).map_err(|failed| failed.into_error(id))
    }

    fn makes_stems(&self) -> Result<(), String> {
        match self.isolation.walls {
            Walls::UserAndNamespaces { .. } => Ok(()),
            _ => Err("bringing code into a sandbox that stands needs Nigh to be root, with namespaces".to_owned()),
        }
    }

    async fn warm(&self, spec: &StemSpec) -> Result<Stem, SandboxError> {
        self.makes_stems().map_err(SandboxError::Unsupported)?;
        self.maker.warm(spec).await.map_err(|failed| failed.into_error(SandboxId::random()))
    }

    async fn start_from(&self, stem: Stem, spec: SandboxSpec) -> Result<Started, SandboxError> {
        match self.maker.adopt(stem, &spec).await {
            Ok(made) => Ok(started(made, spec)),
            Err(Failed { step, reason }) => {
                tracing::info!(sandbox = %spec.id, step, reason, "a prewarmed sandbox is not taken; another is made");
                self.start(spec).await
            }
        }
    }

    async fn sweep(&self) -> Result<usize, SandboxError> {
        let maker = Arc::clone(&self.maker);
        blocking(move || maker.sweep()).await
    }
}

/// Begins to watch over what was made.
fn started(made: Made, spec: SandboxSpec) -> Started {
    let Made { begun: Begun { keeper, control, output, listeners: [runtime, data] }, group, lease, making } = made;
    let output = Output::new(output, spec.log);
    let running = Running { id: spec.id, control, keeper, output, group, lease };
    Started { sandbox: Arc::new(ProcessSandbox::supervise(running)), runtime, data, making }
}

/// Raises walls around nothing, the strongest first; returns the first that stand, and why the others do not.
async fn probe(init: &Path, uid: u32) -> (Option<Walls>, Vec<String>) {
    let root = rustix::process::geteuid().is_root();
    // For root a user namespace alone is no wall: inside, its user would still be the host's root.
    let candidates: &[(&str, Walls)] = if root {
        &[("own user and namespaces", Walls::UserAndNamespaces { uid }), ("own user", Walls::User { uid })]
    } else {
        &[("user namespace", Walls::Namespaces)]
    };
    let mut refused = Vec::new();
    for (name, walls) in candidates {
        let prepare = Prepare {
            walls: *walls,
            // On a shared network another Nigh may probe at the same time.
            address: if walls.has_namespaces() { OWN_NETWORK } else { probe_address(rand::random()) },
            join: Vec::new(),
            thaw: None,
            folders: Vec::new(),
        };
        let launch = Launch {
            command: Vec::new(),
            environment: Vec::new(),
            // Any folder that every user sees.
            code: Some("/usr".into()),
            runtime_folders: Vec::new(),
            tmp_bytes: 1 << 20,
            processes_max: None,
        };
        let raise = async { Begun::prepare(init, &prepare).await?.probe(launch).await };
        match tokio::time::timeout(START_PATIENCE, raise).await {
            Ok(Ok(())) => return (Some(*walls), refused),
            Ok(Err(Failed { step, reason })) => refused.push(format!("{name}: cannot {step}: {reason}")),
            Err(_) => refused.push(format!("{name}: not done in {START_PATIENCE:?}")),
        }
    }
    (None, refused)
}

/// What a function could do where nothing keeps it apart.
fn untrusted(settings: &ProcessSettings, refused: &[String]) -> String {
    format!(
        "{}. A function could read and change whatever Nigh's own user can: its home folder, Nigh's state in {} with \
         the keys and the code of all functions, and the memory of other functions. Start Nigh as root, or allow user \
         namespaces; or start it with --trust-functions if you trust every function with that",
        refused.join("; "),
        settings.state.display()
    )
}

/// Beside the running program, or beside the folder it is in (where Cargo puts tests).
fn find_init() -> Result<PathBuf, SandboxError> {
    let this = std::env::current_exe()
        .map_err(|source| SandboxError::Io { what: "find the running program".to_owned(), source })?;
    this.ancestors().skip(1).take(2).map(|folder| folder.join(INIT)).find(|init| init.is_file()).ok_or_else(|| {
        SandboxError::Unsupported(format!(
            "the program {INIT} is missing; install it beside {}, or name it in the settings",
            this.display()
        ))
    })
}

/// Runs what blocks for up to milliseconds off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SandboxError::Io { what: "run a blocking step".to_owned(), source: io::Error::other(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_what_a_function_could_reach() {
        let message = untrusted(&ProcessSettings::new("x", "/srv/nigh"), &["user namespace: forbidden".to_owned()]);
        for part in ["user namespace: forbidden", "home", "/srv/nigh", "--trust-functions"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[tokio::test]
    async fn a_missing_init_is_named() {
        let settings = ProcessSettings { init: Some("/absent/init".into()), ..ProcessSettings::new("x", "/srv/nigh") };
        let error = ProcessEngine::new(settings).await.unwrap_err();
        assert!(error.to_string().contains("/absent/init"), "{error}");
    }
}
