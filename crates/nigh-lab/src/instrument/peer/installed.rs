//! Where peers are installed: a cache folder outside the clone, one folder a program and version.
//!
//! `scripts/install-peers.sh` fills it; `peers/versions` and `peers/clients.txt` are the one place of the versions, read
//! by both. Nothing is installed from here.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::PeerError;

/// Lines of program, version and Go module.
const VERSIONS: &str = include_str!("../../../peers/versions");
/// The Python packages of the peers' clients.
const CLIENTS: &str = include_str!("../../../peers/clients.txt");
const HINT: &str = "run `make peers`";

/// The cache folder: `nigh/peers` below `XDG_CACHE_HOME`, else `~/.cache`, else the folder of temporary files.
pub(crate) fn cache_folder() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    caches.unwrap_or_else(std::env::temp_dir).join("nigh/peers")
}

#[derive(Debug)]
pub(super) struct InstalledProgram {
    pub(super) program: PathBuf,
    pub(super) version: &'static str,
}

pub(super) fn built(peer: &'static str, program: &'static str) -> Result<InstalledProgram, PeerError> {
    let missing = || PeerError::NotInstalled { peer, missing: program.to_owned(), hint: HINT.to_owned() };
    let version = version_of(program).ok_or_else(missing)?;
    let path = cache_folder().join(format!("{program}-{version}")).join(program);
    if path.is_file() { Ok(InstalledProgram { program: path, version }) } else { Err(missing()) }
}

fn version_of(program: &str) -> Option<&'static str> {
    let mut lines = VERSIONS.lines().map(|line| line.split(' '));
    lines.find_map(|mut words| if words.next() == Some(program) { words.next() } else { None })
}

pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.is_file())
}

/// The folder of the Python clients of Redis and Swift, for the interpreter `python3.<minor>`.
pub(crate) fn python_clients(python: &str) -> Result<PathBuf, PeerError> {
    let hash: String = Sha256::digest(CLIENTS).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let folder = cache_folder().join(format!("clients-{python}-{hash}"));
    if Path::new(&folder).is_dir() {
        Ok(folder)
    } else {
        let missing = format!("{} (redis, hiredis, python-swiftclient)", folder.display());
        Err(PeerError::NotInstalled { peer: "Python clients", missing, hint: HINT.to_owned() })
    }
}

/// The version of a Python package of `peers/clients.txt`.
pub(crate) fn client_version(package: &str) -> &'static str {
    let pins = CLIENTS.lines().filter_map(|line| line.split_once("=="));
    pins.filter(|(name, _)| *name == package).map(|(_, version)| version).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_and_client_has_its_version_in_one_place() {
        for program in ["minio", "versitygw", "nats-server"] {
            assert!(version_of(program).is_some_and(|version| version.starts_with('v')), "{program}");
        }
        for package in ["redis", "hiredis", "python-swiftclient"] {
            assert!(client_version(package).contains('.'), "{package}");
        }
        assert_eq!((version_of("min"), client_version("red")), (None, ""));
    }

    #[test]
    fn what_is_not_installed_names_the_command_that_installs_it() {
        let error = built("Peer", "no-such-program").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("make peers"), "{error}");
        let error = python_clients("python3.0").unwrap_err().to_string();
        assert!(error.contains("hiredis") && error.contains("make peers"), "{error}");
    }
}
