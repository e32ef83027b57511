//! Replaces paths and addresses inside a sandbox by those on the host, where the function sees the host's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::SandboxSpec;
use super::root_tree::{CODE, LAYERS};

/// The function's own folders on the host, each with its path inside.
pub(super) fn own_folders(spec: &SandboxSpec) -> Vec<(PathBuf, PathBuf)> {
    let layers = spec.layers.iter().map(|layers| (layers.clone(), PathBuf::from(LAYERS)));
    std::iter::once((spec.code.clone(), PathBuf::from(CODE))).chain(layers).collect()
}

pub(super) fn pairs(environment: &BTreeMap<OsString, OsString>) -> Vec<(OsString, OsString)> {
    environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub(super) fn names(folders: &[PathBuf]) -> Vec<OsString> {
    folders.iter().map(|folder| folder.as_os_str().to_owned()).collect()
}

/// Replaces names inside the sandbox by names on the host, for a sandbox that shares files and network with the host.
pub(super) fn as_seen_outside(text: &OsStr, code: &Path, layers: Option<&Path>, address: Ipv4Addr) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let network = replace(text.as_bytes(), b"127.0.0.1:", format!("{address}:").as_bytes());
    // Layers are replaced first: their path inside may be part of a folder's name on the host, but not the reverse.
    let shared = match layers {
        Some(layers) => replace(&network, LAYERS.as_bytes(), layers.as_os_str().as_bytes()),
        None => network,
    };
    OsString::from_vec(replace(&shared, CODE.as_bytes(), code.as_os_str().as_bytes()))
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::launch::OWN_NETWORK;

    #[test]
    fn names_of_inside_become_those_of_outside() {
        let outside =
            |text: &str| as_seen_outside(OsStr::new(text), Path::new("/code/f"), None, Ipv4Addr::new(127, 77, 0, 9));
        let layered =
            as_seen_outside(OsStr::new("/var/task:/opt/x"), Path::new("/c"), Some(Path::new("/l")), OWN_NETWORK);
        assert_eq!(layered, "/c:/l/x");
        assert_eq!(outside("http://127.0.0.1:9000/x"), "http://127.77.0.9:9000/x");
        assert_eq!(outside("/var/task/bootstrap:/var/task"), "/code/f/bootstrap:/code/f");
        assert_eq!(outside("plain"), "plain");
    }
}
