//! The Python of functions: probed once, at the start, for its version and the folders of its packages.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_sandbox::runtime_command::PythonRuntime;
use serde::Deserialize;
use thiserror::Error;

/// How long the interpreter may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Folders that every sandbox has.
const SYSTEM_FOLDERS: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/sbin"];
/// The program that the interpreter runs. It prints its own path, which in a virtual environment differs from the
/// resolved one.
const QUESTION: &str = "\
import importlib.util, json, os, sys
print(json.dumps({
    'major': sys.version_info[0], 'minor': sys.version_info[1], 'executable': sys.executable,
    'client': importlib.util.find_spec('awslambdaric') is not None,
    'folders': [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
        + [path for path in sys.path if path and os.path.isdir(path)],
}))";

/// Why Python functions cannot run here.
#[derive(Debug, Error)]
pub enum PythonError {
    /// The interpreter does not start or does not answer.
    #[error(
        "{interpreter}: {reason}; start `nigh up --python PROGRAM` with a Python 3 that has awslambdaric, or set \
         functions.python in the configuration file"
    )]
    NotAsked {
        /// The path of the interpreter.
        interpreter: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The interpreter lacks AWS's runtime client.
    #[error(
        "{interpreter} has no awslambdaric; install it there, or start `nigh up --python PROGRAM` with an interpreter \
         that has it (in the configuration file: functions.python)"
    )]
    NoClient {
        /// The path of the interpreter.
        interpreter: PathBuf,
    },
}

#[derive(Deserialize)]
struct PythonProgram {
    major: u8,
    minor: u8,
    executable: PathBuf,
    client: bool,
    folders: Vec<PathBuf>,
}

/// Probes `interpreter`; `further` folders are added to those that it needs.
///
/// # Errors
/// If it is not a Python 3 with AWS's runtime interface client.
#[boxed]
pub async fn probe(interpreter: &Path, further: &[PathBuf]) -> Result<PythonRuntime, PythonError> {
    let failed = |reason: String| PythonError::NotAsked { interpreter: interpreter.to_owned(), reason };
    let asked = tokio::process::Command::new(interpreter)
        // The operator's PYTHON* variables and user packages must not apply to functions.
        .args(["-E", "-s", "-c", QUESTION])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, asked)
        .await
        .map_err(|_| failed(format!("no answer within {} s", PATIENCE.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.lines().last().unwrap_or("no word"))));
    }
    let answer: PythonProgram = serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("the program does not answer as Python 3 does: {error}")))?;
    if answer.major != 3 {
        return Err(failed(format!("this is Python {}", answer.major)));
    }
    if !answer.client {
        return Err(PythonError::NoClient { interpreter: interpreter.to_owned() });
    }
    let folders = outermost(answer.folders.into_iter().chain(further.iter().cloned()));
    Ok(PythonRuntime { minor: answer.minor, interpreter: answer.executable, folders })
}

/// Each folder once, without folders inside another one and without those that every sandbox has.
fn outermost(folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let system = |folder: &PathBuf| SYSTEM_FOLDERS.iter().any(|system| folder.starts_with(system));
    let mut sorted: Vec<PathBuf> = folders.filter(|folder| folder.is_absolute() && !system(folder)).collect();
    sorted.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in sorted {
        // The folder `/` would show functions the whole machine.
        if folder.parent().is_some() && !kept.iter().any(|outer| folder.starts_with(outer)) {
            kept.push(folder);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_inside_others_or_of_the_system_are_not_named() {
        let folders = ["/opt/venv", "/opt/venv/lib/python3.11", "/usr/lib/python3", "/", "/opt/venv2", "relative"];
        let kept = outermost(folders.into_iter().map(PathBuf::from));
        assert_eq!(kept, [PathBuf::from("/opt/venv"), PathBuf::from("/opt/venv2")]);
    }

    #[tokio::test]
    async fn what_is_no_python_is_named_with_the_setting_that_mends_it() {
        let message = probe(Path::new("/bin/false"), &[]).await.unwrap_err().to_string();
        assert!(message.contains("/bin/false") && message.contains("functions.python"), "{message}");
        assert!(probe(Path::new("/nowhere/python3"), &[]).await.is_err());
    }
}
