//! A folder of Python modules that sandboxes see, whole or absent.
//!
//! Nigh compiles the modules once for each interpreter. Sandboxes see the folder read-only, and would otherwise compile them
//! at each start of a function.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use nigh_sandbox::runtime_command::PythonRuntime;

/// How long an interpreter may take to compile it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file that marks a complete folder.
const COMPLETE: &str = ".complete";
/// The file that marks a folder as compiled for a version of Python that follows.
const COMPILED: &str = ".compiled-3.";

/// The folder `name` below `folder`, made by `write` and compiled by `interpreter` unless it is there. Other folders there
/// are removed: they are of other versions, or of an interrupted start.
///
/// # Errors
/// If the disk refuses, or `interpreter` does not compile it.
pub(crate) async fn bring(
    folder: &Path,
    name: &str,
    interpreter: Option<&Path>,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let library = folder.join(name);
    if library.join(COMPLETE).exists() {
        return Ok(library);
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write(&library)?;
    if let Some(interpreter) = interpreter {
        compile(&library, interpreter).await?;
    }
    open_to_all(folder)?;
    fs::write(library.join(COMPLETE), "")?;
    Ok(library)
}

/// Compiles `library` for `pythons` in a task of its own, for each version once. Until then, and if that fails, their
/// functions start slower.
pub(crate) fn compile_later(library: &Path, pythons: &[PythonRuntime]) {
    let (library, pythons) = (library.to_owned(), pythons.to_vec());
    tokio::spawn(async move {
        for python in pythons {
            let mark = library.join(format!("{COMPILED}{}", python.minor));
            if mark.exists() {
                continue;
            }
            let compiled = compile(&library, &python.interpreter).await;
            let compiled = compiled.and_then(|()| open_to_all(&library)).and_then(|()| fs::write(mark, ""));
            if let Err(error) = compiled {
                let python = python.interpreter.display();
                tracing::warn!(%error, %python, "functions of this Python start slower: its modules are not compiled");
            }
        }
    });
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
