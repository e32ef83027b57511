//! Installs the Python package of the fast path in a folder of its own, which sandboxes see: the client, the hook for
//! boto3, and the `sitecustomize` that loads it (`runtimes/python`).
//! Nigh compiles the package once. Sandboxes see the folder read-only, and would otherwise compile it at each start of
//! a function.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use nigh_sandbox::runtime_command::PythonRuntime;
use nigh_terms::hex;
use sha2::{Digest as _, Sha256};

use crate::status::Level;

/// How long the interpreter may take to compile it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file that marks a complete folder.
const COMPLETE: &str = ".complete";
/// The bytes of the contents' hash in the folder's name.
const NAME_BYTES: usize = 8;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../runtimes/python/", $name)))),*]
    };
}

/// The files, with their paths.
const FILES: [(&str, &str); 14] = files![
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
    "nigh/segment.py",
    "nigh/transaction.py",
    "nigh/upload.py",
    "nigh/wire.py",
];

/// Installs the package for `python` below `folder`. Returns one line for the status, and the folder if that worked.
pub(crate) async fn install(folder: &Path, python: &PythonRuntime) -> (Level, Option<PathBuf>) {
    let level = |on, detail| Level { name: "python fast path".to_owned(), on, detail };
    match bring(folder, python).await {
        Ok(library) => (level(true, "boto3 in sandboxes uses the fast path".to_owned()), Some(library)),
        Err(error) => (level(false, format!("boto3 in sandboxes uses HTTP: {}: {error}", folder.display())), None),
    }
}

async fn bring(folder: &Path, python: &PythonRuntime) -> io::Result<PathBuf> {
    let library = folder.join(name_of(python));
    if library.join(COMPLETE).exists() {
        return Ok(library);
    }
    // Removes folders of other versions, or of an interrupted start.
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for (name, text) in FILES.iter().chain(&[("nigh/py.typed", "")]) {
        let path = library.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text)?;
    }
    compile(&library, &python.interpreter).await?;
    open_to_all(folder)?;
    fs::write(library.join(COMPLETE), "")?;
    Ok(library)
}

/// A name that changes with the files and with the interpreter.
fn name_of(python: &PythonRuntime) -> String {
    let mut hash = Sha256::new();
    hash.update(python.interpreter.as_os_str().as_encoded_bytes());
    hash.update([python.minor]);
    for (name, text) in FILES {
        hash.update(name);
        hash.update(text);
    }
    hex(&hash.finalize()[..NAME_BYTES])
}

async fn compile(library: &Path, interpreter: &Path) -> io::Result<()> {
    let compiler = tokio::process::Command::new(interpreter)
        // With this mode Python never compares the files' times.
        .args(["-E", "-s", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"])
        .arg(library)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, compiler)
        .await
        .map_err(|_| io::Error::other(format!("the library was not compiled within {} s", PATIENCE.as_secs())))??;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Err(io::Error::other(format!(
        "the library was not compiled: {}: {}",
        output.status,
        said.lines().last().unwrap_or("no word")
    )))
}

/// Makes the folder readable for all users: sandboxes run as other users.
fn open_to_all(path: &Path) -> io::Result<()> {
    let is_folder = path.is_dir();
    fs::set_permissions(path, fs::Permissions::from_mode(if is_folder { 0o755 } else { 0o644 }))?;
    if is_folder {
        for entry in fs::read_dir(path)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
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
        Some(PythonRuntime { minor, interpreter: "python3".into(), folders: Vec::new() })
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
        let (level, library) = install(&folder, &python).await;
        let library = library.unwrap_or_else(|| panic!("{}", level.detail));
        assert!(level.on && !folder.join("old").exists());
        let mut compiled = fs::read_dir(library.join("nigh/__pycache__")).unwrap();
        assert!(compiled.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("hook.cpython-3")));
        let made = fs::metadata(library.join("nigh/hook.py")).unwrap().modified().unwrap();
        assert_eq!(install(&folder, &python).await.1, Some(library.clone()));
        assert_eq!(fs::metadata(library.join("nigh/hook.py")).unwrap().modified().unwrap(), made);
        let other = PythonRuntime { minor: python.minor + 1, ..python };
        assert_ne!(install(&folder, &other).await.1, Some(library));
    }

    #[tokio::test]
    async fn what_cannot_be_compiled_is_off_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let python = PythonRuntime { minor: 11, interpreter: "/bin/false".into(), folders: Vec::new() };
        let (level, library) = install(&folder.path().join("library"), &python).await;
        assert!(!level.on && library.is_none() && level.detail.contains("not compiled"), "{}", level.detail);
    }
}
