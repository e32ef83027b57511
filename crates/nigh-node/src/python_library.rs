//! Installs the Python package of the fast path in a folder of its own, which sandboxes see: the client, the hook for
//! boto3, and the `sitecustomize` that loads it (`runtimes/python`), with the client's native module where it is installed
//! beside this program (`crates/nigh-python`).

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use std::{fs, io};

use nigh_sandbox::runtime_command::PythonRuntime;
use nigh_terms::{companion_programs, hex};
use sha2::{Digest as _, Sha256};

use crate::python_folder::{bring, compile_later};
use crate::status::Level;

/// The bytes of the contents' hash in the folder's name.
const NAME_BYTES: usize = 8;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../runtimes/python/", $name)))),*]
    };
}

/// The files, with their paths.
const FILES: [(&str, &str); 15] = files![
    "site/sitecustomize.py",
    "nigh/__init__.py",
    "nigh/client.py",
    "nigh/connection.py",
    "nigh/errors.py",
    "nigh/hook.py",
    "nigh/hook_body.py",
    "nigh/hook_put.py",
    "nigh/hook_request.py",
    "nigh/hook_result.py",
    "nigh/native.py",
    "nigh/segment.py",
    "nigh/transaction.py",
    "nigh/upload.py",
    "nigh/wire.py",
];

/// The native module, as Cargo and the packages name it, and its place in the folder.
const NATIVE: &str = "libnigh_native.so";
const NATIVE_PLACE: &str = "nigh/nigh_native.abi3.so";

/// Installs the package for `python` and `others` below `folder`. Returns one line for the status, and the folder if that
/// worked.
pub(crate) async fn install(
    folder: &Path,
    python: &PythonRuntime,
    others: &[PythonRuntime],
) -> (Level, Option<PathBuf>) {
    let native = std::env::current_exe()
        .ok()
        .and_then(|nigh| companion_programs(&nigh, NATIVE).find(|path| fs::File::open(path).is_ok()));
    install_with(folder, native.as_deref(), python, others).await
}

async fn install_with(
    folder: &Path,
    native: Option<&Path>,
    python: &PythonRuntime,
    others: &[PythonRuntime],
) -> (Level, Option<PathBuf>) {
    let level = |on, detail| Level { name: "python fast path".to_owned(), on, detail };
    let name = name_of(python, native);
    match bring(folder, &name, Some(&python.interpreter), |library| write(library, native)).await {
        Ok(library) => {
            compile_later(&library, others);
            let how = native
                .map_or_else(|| format!(", slower: beside nigh is no {NATIVE} that it can read"), |_| String::new());
            (level(true, format!("boto3 in sandboxes uses the fast path{how}")), Some(library))
        }
        Err(error) => (level(false, format!("boto3 in sandboxes uses HTTP: {}: {error}", folder.display())), None),
    }
}

fn write(library: &Path, native: Option<&Path>) -> io::Result<()> {
    for (name, text) in FILES.iter().chain(&[("nigh/py.typed", "")]) {
        let path = library.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text)?;
    }
    match native {
        Some(native) => fs::copy(native, library.join(NATIVE_PLACE)).map(drop),
        None => Ok(()),
    }
}

/// A name that changes with the files and with the interpreter.
fn name_of(python: &PythonRuntime, native: Option<&Path>) -> String {
    let mut hash = Sha256::new();
    hash.update(python.interpreter.as_os_str().as_encoded_bytes());
    hash.update([python.minor]);
    for (name, text) in FILES {
        hash.update(name);
        hash.update(text);
    }
    if let Some(native) = native.and_then(|native| fs::metadata(native).ok()) {
        // Whoever installs another version makes this file anew.
        let made = native.modified().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        hash.update(native.len().to_le_bytes());
        hash.update(made.as_nanos().to_le_bytes());
    }
    hex(&hash.finalize()[..NAME_BYTES])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nigh_sandbox::runtime_command::SITE_FOLDER;

    use super::*;
    use crate::skipped::skip;

    /// The machine's own Python, if it has one.
    fn python() -> Option<PythonRuntime> {
        let said = Command::new("python3").args(["-c", "import sys; print(sys.version_info.minor)"]).output().ok()?;
        let minor = String::from_utf8(said.stdout).ok()?.trim().parse().ok()?;
        Some(PythonRuntime { minor, interpreter: "python3".into(), folders: Vec::new(), client: None })
    }

    #[test]
    fn every_module_of_the_package_is_brought() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtimes/python");
        for folder in ["nigh", "site"] {
            for entry in fs::read_dir(package.join(folder)).unwrap() {
                let name = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
                assert!(!name.ends_with(".py") || FILES.iter().any(|(file, _)| *file == name), "{name} is left out");
            }
        }
        assert!(FILES.iter().any(|(name, _)| Path::new(name).starts_with(SITE_FOLDER)));
    }

    #[tokio::test]
    async fn the_package_is_brought_compiled_and_once() {
        let Some(python) = python() else {
            skip("the_package_is_brought_compiled_and_once", "no python3");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("library");
        fs::create_dir_all(folder.join("old")).unwrap();
        let (level, library) = install(&folder, &python, &[]).await;
        let library = library.unwrap_or_else(|| panic!("{}", level.detail));
        assert!(level.on && !folder.join("old").exists());
        let mut compiled = fs::read_dir(library.join("nigh/__pycache__")).unwrap();
        assert!(compiled.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("hook.cpython-3")));
        let made = fs::metadata(library.join("nigh/hook.py")).unwrap().modified().unwrap();
        assert_eq!(install(&folder, &python, &[]).await.1, Some(library.clone()));
        assert_eq!(fs::metadata(library.join("nigh/hook.py")).unwrap().modified().unwrap(), made);
        let other = PythonRuntime { minor: python.minor + 1, ..python };
        assert_ne!(install(&folder, &other, &[]).await.1, Some(library));
    }

    #[tokio::test]
    async fn the_native_module_lies_in_the_package_and_is_renewed() {
        let test = "the_native_module_lies_in_the_package_and_is_renewed";
        let Some(python) = python() else { return skip(test, "no python3") };
        let root = tempfile::tempdir().unwrap();
        let (folder, native) = (root.path().join("library"), root.path().join(NATIVE));
        let (level, without) = install_with(&folder, None, &python, &[]).await;
        assert!(level.on && level.detail.contains(NATIVE), "{}", level.detail);
        assert!(!without.unwrap().join(NATIVE_PLACE).exists());
        for contents in ["a module", "a newer module"] {
            fs::write(&native, contents).unwrap();
            let (level, library) = install_with(&folder, Some(&native), &python, &[]).await;
            assert!(level.on && !level.detail.contains(NATIVE), "{}", level.detail);
            assert_eq!(fs::read_to_string(library.unwrap().join(NATIVE_PLACE)).unwrap(), contents);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_compiled_is_off_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let python = PythonRuntime { minor: 11, interpreter: "/bin/false".into(), folders: Vec::new(), client: None };
        let (level, library) = install(&folder.path().join("library"), &python, &[]).await;
        assert!(!level.on && library.is_none() && level.detail.contains("not compiled"), "{}", level.detail);
    }
}
