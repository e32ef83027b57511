//! The engine `process`: each sandbox is a process tree isolated by the kernel, without a container runtime.
//!
//! This side decides which isolation is possible; `nigh-sandbox` does the work inside. `launch` has their messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SandboxError;
use super::factory::{FactoryParts, IsolationMethod, SandboxFactory};
use super::isolation::Isolation;
use super::launch::{IsolationLevel, Launch, OWN_NETWORK, Prepare};
use super::local::{EngineSettings, LocalEngine, NOT_TOLD, blocking};
use super::processes::SandboxProcesses;
use super::seccomp_profile;
use super::slots::probe_address;
use super::step_failure::START_PATIENCE;
use crate::cgroup::{CgroupHost, Trees};

/// The size of /tmp in a trial.
const PROBE_TMP_BYTES: u64 = 1 << 20;

/// Takes the strongest isolation that works. `stronger` names stronger ones and why they do not work.
pub(super) async fn open(
    settings: &EngineSettings,
    init: PathBuf,
    stronger: Option<String>,
) -> Result<LocalEngine, SandboxError> {
    let (instance, cpusets) = (settings.instance.clone(), settings.cpusets);
    let cgroups = blocking(move || CgroupHost::detect(&instance, cpusets, Trees::Controlled)).await?;
    let cpus = cgroups.sandbox_cpus();
    let (level, reasons) = probe(&init, settings.uids.start).await;
    let mut refused: Vec<String> = stronger.into_iter().chain(reasons).collect();
    if let Some(IsolationLevel::User { .. }) = level {
        refused.push("own user alone: any sandbox could ask for another's input on the shared network".to_owned());
    }
    let level = match level {
        Some(level) if level.has_namespaces() || settings.trust_functions => level,
        None if settings.trust_functions => IsolationLevel::None,
        _ => return Err(SandboxError::Unsupported(untrusted(settings, &refused))),
    };
    let filter = seccomp_profile::available();
    let making = FactoryParts {
        init,
        raising: IsolationMethod::ByInit(level),
        uids: settings.uids.clone(),
        blanks: settings.blanks,
        filter: filter.is_ok(),
        fast_path: settings.fast_path,
        cgroups: Arc::new(cgroups),
    };
    let controls = making.cgroups.controls();
    let isolation = Isolation { level, runtime: None, filter, refused, controls };
    Ok(LocalEngine {
        kind: "process",
        isolation,
        factory: Arc::new(SandboxFactory::new(making)),
        cpus,
        outbound: Err(NOT_TOLD.to_owned()),
    })
}

/// Tries each isolation on an empty sandbox, the strongest first. Returns the first that works, and why the others do
/// not.
async fn probe(init: &Path, uid: u32) -> (Option<IsolationLevel>, Vec<String>) {
    let root = rustix::process::geteuid().is_root();
    // For root a user namespace alone does not isolate: inside, the user is still the host's root.
    let candidates: &[(&str, IsolationLevel)] = if root {
        &[
            ("own user and namespaces", IsolationLevel::UserAndNamespaces { uid }),
            ("own user", IsolationLevel::User { uid }),
        ]
    } else {
        &[("user namespace", IsolationLevel::Namespaces)]
    };
    let mut refused = Vec::new();
    for (name, level) in candidates {
        let prepare = Prepare {
            level: *level,
            // On a shared network another Nigh may run a probe at the same time.
            address: if level.has_namespaces() { OWN_NETWORK } else { probe_address(rand::random()) },
            join: Vec::new(),
            thaw: None,
            folders: Vec::new(),
            container: None,
        };
        // A folder that every user can read.
        let launch = Launch::probe(Path::new("/usr"), PROBE_TMP_BYTES);
        let raise = async { SandboxProcesses::prepare(init, &prepare).await?.probe(launch).await };
        match tokio::time::timeout(START_PATIENCE, raise).await {
            Ok(Ok(())) => return (Some(*level), refused),
            Ok(Err(failed)) => refused.push(format!("{name}: {}", failed.sentence())),
            Err(_) => refused.push(format!("{name}: not done in {START_PATIENCE:?}")),
        }
    }
    (None, refused)
}

/// What a function can do without isolation.
fn untrusted(settings: &EngineSettings, refused: &[String]) -> String {
    format!(
        "{}. A function could read and change whatever Nigh's own user can: its home folder, Nigh's state in {} with \
         the keys and the code of all functions, and the memory of other functions. Start Nigh as root, or allow user \
         namespaces; or start it with --trust-functions if you trust every function with that",
        refused.join("; "),
        settings.state.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_what_a_function_could_reach() {
        let message = untrusted(&EngineSettings::new("x", "/srv/nigh"), &["user namespace: forbidden".to_owned()]);
        for part in ["user namespace: forbidden", "home", "/srv/nigh", "--trust-functions"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
