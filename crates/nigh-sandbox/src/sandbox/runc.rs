//! The engine `runc`: each sandbox is a container that runc makes, with Nigh's own init inside.
//!
//! This side decides by a trial whether runc can be used, and whether with a user namespace. runc isolates a blank
//! sandbox when it is made and deletes the container at the end; everything in between goes through the init's socket
//! and the cgroup's files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::timeout;

use super::bundle::Bundles;
use super::external_program::ExternalProgram;
use super::factory::{FactoryParts, IsolationMethod, SandboxFactory};
use super::isolation::{Isolation, Runtime};
use super::local::{EngineSettings, LocalEngine, NOT_TOLD, blocking};
use super::step_failure::START_PATIENCE;
use crate::cgroup::{CgroupHost, Trees};

/// The oldest version with recursive read-only mounts, and with a user namespace over folders that its root cannot
/// list.
const RUNC: ExternalProgram = ExternalProgram { name: "runc", oldest: (1, 1) };

/// An engine if runc works here; if not, the reason.
pub(super) async fn open(settings: &EngineSettings, init: PathBuf) -> Result<LocalEngine, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("Nigh does not run as root".to_owned());
    }
    let program = find(settings.runc.as_deref())?;
    let version = RUNC.version(&program).await?;
    let (instance, cpusets) = (settings.instance.clone(), settings.cpusets);
    let cgroups = blocking(move || CgroupHost::detect(&instance, cpusets, Trees::All)).await;
    let cgroups = Arc::new(cgroups.map_err(|error| error.to_string())?);
    let folder = settings.runtime_folder.join(format!("nigh-{}", settings.instance));
    let half = settings.uids.len() as u32 / 2;
    if half == 0 {
        return Err(
            "each sandbox needs two users, and the range from functions.uid_base has fewer; lower it".to_owned()
        );
    }
    let (first, end) = (settings.uids.start, settings.uids.end);
    let mut refused = Vec::new();
    for (user_namespace, uids, root_offset) in [(true, first..first + half, Some(half)), (false, first..end, None)] {
        let (folder, program, its_init) = (folder.clone(), program.clone(), init.clone());
        let bundles = blocking(move || Bundles::open(&folder, &program, &its_init, root_offset)).await;
        let bundles = bundles.map_err(|error| error.to_string())?.map_err(|failed| failed.sentence())?;
        let factory = SandboxFactory::new(FactoryParts {
            init: init.clone(),
            raising: IsolationMethod::ByRuntime(bundles),
            uids,
            cgroups: Arc::clone(&cgroups),
            blanks: settings.blanks,
            // runc has filtered the system calls of the init and its descendants already.
            filter: false,
            fast_path: settings.fast_path,
        });
        let why = match timeout(START_PATIENCE, factory.probe()).await {
            Ok(Ok(())) => {
                let isolation = Isolation {
                    level: factory.level(),
                    runtime: Some(Runtime { version, user_namespace }),
                    filter: Ok(()),
                    refused,
                    controls: cgroups.controls(),
                };
                let cpus = cgroups.sandbox_cpus();
                return Ok(LocalEngine {
                    kind: RUNC.name,
                    isolation,
                    factory: Arc::new(factory),
                    cpus,
                    outbound: Err(NOT_TOLD.to_owned()),
                });
            }
            Ok(Err(failed)) => failed.sentence(),
            Err(_) => format!("not done in {START_PATIENCE:?}"),
        };
        let how = if user_namespace { "user namespace" } else { "without a user namespace" };
        refused.push(format!("{how}: {why}"));
    }
    Err(refused.join("; "))
}

fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(named) = named {
        return match named.is_file() {
            true => Ok(named.to_owned()),
            false => Err(format!("{} is not there", named.display())),
        };
    }
    RUNC.find().ok_or_else(|| "runc is not installed (the package `runc` of most distributions)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_runc_that_is_absent_is_named() {
        assert!(find(Some(Path::new("/absent/runc"))).unwrap_err().contains("/absent/runc"));
    }
}
