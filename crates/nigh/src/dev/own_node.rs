//! The node that `nigh dev` starts if none runs: `nigh up` as a process of its own, which ends with the session.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nigh_node::endpoints::{Endpoints, EndpointsError};
use nigh_node::state_folder::StatePaths;
use nigh_node::status::DrainStatus;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::context::Globals;
use crate::error::CliError;

/// The node's log, in its state folder.
const LOG_FILE: &str = "dev.log";
/// How long the node may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// How often it is looked for meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A node that this process started.
pub(super) struct OwnNode {
    child: Child,
    log: PathBuf,
}

impl OwnNode {
    /// Starts a node if none runs at the state folder; `config` is its settings file, unless the command line names one.
    /// None if one runs.
    ///
    /// # Errors
    /// If the one that runs drains, or the new one does not start.
    pub(super) async fn ensure(globals: &Globals, config: Option<&Path>) -> Result<Option<Self>, CliError> {
        let paths = globals.paths()?;
        match Endpoints::read(&paths) {
            Ok(_) => Ok(None),
            Err(EndpointsError::NotRunning(_)) => Self::start(&paths, globals, config).await.map(Some),
            Err(error) => Err(error.into()),
        }
    }

    async fn start(paths: &StatePaths, globals: &Globals, config: Option<&Path>) -> Result<Self, CliError> {
        let root = paths.root();
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(CliError::local(root.display()))?;
        let log = root.join(LOG_FILE);
        let to_log = File::create(&log).map_err(CliError::local(log.display()))?;
        let also_to_log = to_log.try_clone().map_err(CliError::local(log.display()))?;
        let program = std::env::current_exe().map_err(CliError::local("the path of nigh"))?;
        let mut command = Command::new(&program);
        command.arg("up").arg("--state").arg(root);
        if let Some(config) = globals.config.as_deref().or(config) {
            command.arg("--config").arg(config);
        }
        // In a process group of its own: Ctrl-C is for this process, which then ends the node in order.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(to_log).stderr(also_to_log);
        let mut own = Self { child: command.spawn().map_err(CliError::local(program.display()))?, log };
        let began = Instant::now();
        loop {
            if Endpoints::read(paths).is_ok() {
                return Ok(own);
            }
            let ended = own.child.try_wait().map_err(CliError::local("waiting for the node"))?;
            if let Some(status) = ended {
                return Err(own.failed(&status.to_string()));
            }
            if began.elapsed() > START_MAX {
                own.end(globals).await;
                return Err(own.failed(&format!("it was not ready within {} s", START_MAX.as_secs())));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Why the node did not start: its last words, else `how`.
    fn failed(&self, how: &str) -> CliError {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let said = text.lines().rev().find_map(|line| line.strip_prefix("nigh: ")).unwrap_or(how);
        CliError::Failed(format!("the node did not start: {said}; its log is {}", self.log.display()))
    }

    /// Its log.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Ends the node in order: it finishes what runs. If this is not awaited, the node is killed when it is dropped.
    pub(super) async fn end(&mut self, globals: &Globals) {
        let asked = match globals.admin() {
            Ok(admin) => admin.post::<DrainStatus>("/shutdown").await.is_ok(),
            Err(_) => false,
        };
        if !asked && let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id as i32)) {
            // It fails only if the node has ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        // The node ends by itself after `drain`. That it cannot be waited for has no remedy here.
        let _ = self.child.wait().await;
    }
}
