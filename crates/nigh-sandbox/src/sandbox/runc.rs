//! The engine `runc`: each sandbox a container that runc makes, with Nigh's own init inside.
//!
//! This side decides whether runc can be used, and with a user namespace or without: by making a container around
//! nothing. runc raises the walls when a blank is made and deletes what it made afterwards; everything in between goes
//! over the init's socket and the cgroup's files.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Command;
use tokio::time::timeout;

use super::blank::{BlankParts, IsolationMethod, Maker, START_PATIENCE};
use super::bundle::Bundles;
use super::isolation::{Isolation, Runtime};
use super::local::{EngineSettings, LocalEngine, NOT_TOLD, blocking};
use crate::cgroup::{CgroupHost, Trees};

/// The program's name.
const NAME: &str = "runc";
/// Where it may be beside the folders of `PATH`, which services have without them.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"];
/// The first version with recursive read-only mounts, and a user namespace over folders that its root cannot list.
const OLDEST: (u32, u32) = (1, 1);

/// An engine if runc works here, else why it does not.
pub(super) async fn open(settings: &EngineSettings, init: PathBuf) -> Result<LocalEngine, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("Nigh does not run as root".to_owned());
    }
    let program = find(settings.runc.as_deref())?;
    let version = version(&program).await?;
    let (instance, cpusets) = (settings.instance.clone(), settings.cpusets);
    let cgroups = blocking(move || CgroupHost::detect(&instance, cpusets, Trees::All)).await;
    let cgroups = Arc::new(cgroups.map_err(|error| error.to_string())?);
    let folder = settings.runtime_folder.join(format!("nigh-{}", settings.instance));
    let half = settings.uids.len() as u32 / 2;
    if half == 0 {
        return Err("each sandbox needs two users, and the range of users has not so many".to_owned());
    }
    let (first, end) = (settings.uids.start, settings.uids.end);
    let mut refused = Vec::new();
    for (user_namespace, uids, root_offset) in [(true, first..first + half, Some(half)), (false, first..end, None)] {
        let (folder, program, its_init) = (folder.clone(), program.clone(), init.clone());
        let bundles = blocking(move || Bundles::open(&folder, &program, &its_init, root_offset)).await;
        let bundles = bundles.map_err(|error| error.to_string())?.map_err(|failed| failed.sentence())?;
        let maker = Maker::new(BlankParts {
            init: init.clone(),
            raising: IsolationMethod::ByRuntime(bundles),
            uids,
            cgroups: Arc::clone(&cgroups),
            blanks: settings.blanks,
            // runc has bounded the init already, and all that comes of it.
            filter: false,
            fast_path: settings.fast_path,
        });
        let why = match timeout(START_PATIENCE, maker.probe()).await {
            Ok(Ok(())) => {
                let isolation = Isolation {
                    walls: maker.walls(),
                    runtime: Some(Runtime { version, user_namespace }),
                    filter: Ok(()),
                    refused,
                    controls: cgroups.controls(),
                };
                let cpus = cgroups.sandbox_cpus();
                return Ok(LocalEngine {
                    kind: NAME,
                    isolation,
                    maker: Arc::new(maker),
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
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders
        .map(|folder| folder.join(NAME))
        .find(|program| program.is_file())
        .ok_or_else(|| format!("{NAME} is not installed (the package `runc` of most distributions)"))
}

/// The program's own word, if it is young enough.
async fn version(program: &Path) -> Result<String, String> {
    let asked = Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let said = match timeout(START_PATIENCE, asked).await {
        Ok(Ok(said)) => String::from_utf8_lossy(&said.stdout).into_owned(),
        Ok(Err(error)) => return Err(format!("{} does not run: {error}", program.display())),
        Err(_) => return Err(format!("{} does not answer", program.display())),
    };
    let (version, number) = parse_version(&said).ok_or_else(|| format!("{} says no version", program.display()))?;
    match number >= OLDEST {
        true => Ok(version),
        false => Err(format!("{version} is older than {}.{}", OLDEST.0, OLDEST.1)),
    }
}

/// `runc 1.1.5` and (1, 1) of what `runc --version` prints.
fn parse_version(said: &str) -> Option<(String, (u32, u32))> {
    let text = said.lines().next()?.strip_prefix("runc version ")?;
    let text = text.split(['+', '-', ' ']).next()?;
    let mut parts = text.split('.').map(|part| part.parse().ok());
    let number = (parts.next()??, parts.next()??);
    Some((format!("{NAME} {text}"), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        let read = |text: &str| parse_version(text);
        assert_eq!(read("runc version 1.1.5+ds1\ncommit: x\n"), Some(("runc 1.1.5".to_owned(), (1, 1))));
        assert_eq!(read("runc version 1.2.0-rc.1\n"), Some(("runc 1.2.0".to_owned(), (1, 2))));
        assert_eq!(read("runc version 1.0.0~rc93\n").map(|(_, number)| number), Some((1, 0)));
        assert_eq!(read("crun version 1.8\n"), None);
        assert_eq!(read(""), None);
        assert!((1, 0) < OLDEST && (1, 1) >= OLDEST && (2, 0) >= OLDEST);
    }

    #[tokio::test]
    async fn a_program_that_is_no_runc_is_refused() {
        let why = version(Path::new("/bin/true")).await.unwrap_err();
        assert!(why.contains("/bin/true"), "{why}");
        assert!(find(Some(Path::new("/absent/runc"))).unwrap_err().contains("/absent/runc"));
    }
}
