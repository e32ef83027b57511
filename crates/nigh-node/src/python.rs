//! The Pythons of functions: found and probed once, at the start, for their versions and the folders of their packages.

mod candidates;
mod versions;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::future::join_all;
use nigh_sandbox::runtime_command::PythonRuntime;
use serde::Deserialize;
use thiserror::Error;

pub use self::candidates::Places;
pub use self::versions::{FoundPython, FoundPythons};
use crate::config::PythonChoice;

/// How long an interpreter may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Folders that every sandbox has.
const SYSTEM_FOLDERS: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/sbin"];
/// The program that the interpreter runs. It prints its own path, which in a virtual environment differs from the
/// resolved one.
const QUESTION: &str = "\
import importlib.util, json, os, sys
client = importlib.util.find_spec('awslambdaric')
print(json.dumps({
    'major': sys.version_info[0], 'minor': sys.version_info[1], 'executable': sys.executable,
    'client': client is not None, 'packages': client and os.path.dirname(os.path.dirname(client.origin)),
    'boto3': importlib.util.find_spec('boto3') is not None,
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
        "{interpreter} has no awslambdaric; install it there (`{interpreter} -m pip install awslambdaric boto3`), or start \
         `nigh up --python PROGRAM` with an interpreter that has it (in the configuration file: functions.python)"
    )]
    NoClient {
        /// The path of the interpreter.
        interpreter: PathBuf,
        /// Its version: 11 of 3.11.
        minor: u8,
    },
    /// No interpreter of this machine has AWS's runtime client.
    #[error("{}", none_fits(.found, .own))]
    NoneFits {
        /// The Pythons that were found and their versions: 11 of 3.11.
        found: Vec<(PathBuf, u8)>,
        /// Where to make an environment that Nigh finds.
        own: PathBuf,
    },
}

/// What was found, and the command that makes an environment that Nigh finds by itself.
fn none_fits(found: &[(PathBuf, u8)], own: &Path) -> String {
    /// Further ones are counted.
    const NAMED_MAX: usize = 3;
    let own = own.display();
    let make = format!("{own} && {own}/bin/pip install awslambdaric boto3");
    let Some((first, _)) = found.first() else {
        return format!(
            "no Python 3 is found on this machine; install one, with its module venv, and run \
             `python3 -m venv {make}`, or name another with `nigh up --python PROGRAM` (functions.python)"
        );
    };
    let mut named = String::new();
    for (interpreter, minor) in found.iter().take(NAMED_MAX) {
        let comma = if named.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(named, "{comma}{} (3.{minor})", interpreter.display());
    }
    if found.len() > NAMED_MAX {
        let _ = write!(named, " and {} more", found.len() - NAMED_MAX);
    }
    format!(
        "no Python of this machine has awslambdaric: {named}; run `{} -m venv {make}`, or name another with \
         `nigh up --python PROGRAM` (functions.python)",
        first.display()
    )
}

#[derive(Deserialize)]
struct PythonProgram {
    major: u8,
    minor: u8,
    executable: PathBuf,
    client: bool,
    /// The folder with the client.
    #[serde(default)]
    packages: Option<PathBuf>,
    boto3: bool,
    folders: Vec<PathBuf>,
}

impl PythonProgram {
    /// The Python; `further` folders are added to those that it needs.
    fn found(self, further: &[PathBuf]) -> FoundPython {
        let folders = outermost(self.folders.into_iter().chain(further.iter().cloned()));
        let runtime = PythonRuntime { minor: self.minor, interpreter: self.executable, folders, client: None };
        FoundPython { runtime, has_client: self.client, packages: self.packages, has_boto3: self.boto3 }
    }
}

/// The Pythons of functions, by the setting: of each version one. `further` folders are added to those that they need.
///
/// # Errors
/// If a named program is no Python 3, or no Python has AWS's runtime interface client.
#[boxed]
pub async fn find_all(choice: &PythonChoice, further: &[PathBuf]) -> Result<FoundPythons, PythonError> {
    match choice {
        PythonChoice::Program(programs) => named(programs, further).await,
        PythonChoice::Auto => search(&Places::of_process(), further).await,
    }
}

/// The interpreters of version 3.`minor` on this machine: first those that the setting names, then all others.
#[boxed]
pub async fn interpreters(choice: &PythonChoice, minor: u8) -> Vec<PathBuf> {
    let places = Places::of_process().candidates();
    let mut candidates = match choice {
        PythonChoice::Program(programs) => std::env::split_paths(programs).collect(),
        PythonChoice::Auto => Vec::new(),
    };
    candidates.extend(places);
    let (known, unknown) = versions::of_version(candidates, minor);
    if !known.is_empty() {
        return known;
    }
    let asked = join_all(unknown.iter().map(|program| ask(program))).await;
    let fits = |asked: &Result<PythonProgram, PythonError>| asked.as_ref().is_ok_and(|found| found.minor == minor);
    unknown.iter().zip(&asked).filter(|(_, asked)| fits(asked)).map(|(program, _)| program.clone()).collect()
}

/// The programs of a list that is separated like `PATH`.
async fn named(programs: &Path, further: &[PathBuf]) -> Result<FoundPythons, PythonError> {
    let mut found = Vec::new();
    let list: Vec<PathBuf> = std::env::split_paths(programs).filter(|one| !one.as_os_str().is_empty()).collect();
    for program in list {
        found.push((program.clone(), ask(&program).await?.found(further)));
    }
    let first = found.first().map(|(program, python)| (program.clone(), python.runtime.minor));
    FoundPythons::choose(found.into_iter().map(|(_, python)| python).collect()).ok_or_else(|| match first {
        Some((interpreter, minor)) => PythonError::NoClient { interpreter, minor },
        None => PythonError::NotAsked { interpreter: programs.to_owned(), reason: "no program is named".to_owned() },
    })
}

/// Of each version the best Python of `places`.
async fn search(places: &Places, further: &[PathBuf]) -> Result<FoundPythons, PythonError> {
    let groups = versions::by_version(&places.candidates());
    let asked = join_all(groups.into_iter().map(first_that_answers)).await;
    let mut asked: Vec<(usize, PathBuf, PythonProgram)> = asked.into_iter().flatten().collect();
    asked.sort_by_key(|(place, ..)| *place);
    let named = asked.iter().map(|(_, program, found)| (program.clone(), found.minor)).collect();
    let found = asked.into_iter().map(|(_, _, found)| found.found(further)).collect();
    FoundPythons::choose(found).ok_or_else(|| {
        let own = places.own().unwrap_or(Path::new("nigh-python")).to_owned();
        PythonError::NoneFits { found: named, own }
    })
}

/// The first of `group` that is a Python 3, with its place among all candidates.
async fn first_that_answers(group: Vec<(usize, PathBuf)>) -> Option<(usize, PathBuf, PythonProgram)> {
    for (place, program) in group {
        match ask(&program).await {
            Ok(found) => return Some((place, program, found)),
            Err(error) => tracing::debug!(%error, "a Python is passed over"),
        }
    }
    None
}

/// Asks `interpreter` what it has.
///
/// # Errors
/// If it is not a Python 3.
async fn ask(interpreter: &Path) -> Result<PythonProgram, PythonError> {
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
    Ok(answer)
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
        let message = named(Path::new("/bin/false"), &[]).await.unwrap_err().to_string();
        assert!(message.contains("/bin/false") && message.contains("functions.python"), "{message}");
        assert!(named(Path::new("/nowhere/python3"), &[]).await.is_err());
    }

    #[test]
    fn where_no_python_fits_the_message_has_the_command_that_mends_it() {
        let found = (9..14).map(|minor| (PathBuf::from(format!("/opt/python3.{minor}")), minor)).collect();
        let message = PythonError::NoneFits { found, own: "/home/u/.local/share/nigh/python".into() }.to_string();
        for part in [
            "/opt/python3.9 (3.9), /opt/python3.10 (3.10), /opt/python3.11 (3.11) and 2 more",
            "`/opt/python3.9 -m venv /home/u/.local/share/nigh/python && ",
            "/bin/pip install awslambdaric boto3`",
            "--python",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let none = PythonError::NoneFits { found: Vec::new(), own: "/o".into() }.to_string();
        assert!(none.contains("no Python 3 is found") && none.contains("python3 -m venv /o"), "{none}");
    }

    #[tokio::test]
    async fn of_several_pythons_the_first_with_client_and_boto3_is_taken_and_of_none_all_are_named() {
        use std::os::unix::fs::PermissionsExt as _;

        let root = tempfile::tempdir().unwrap();
        // A program that answers as an interpreter does.
        let python = |folder: &str, minor: u8, client: bool, boto3: bool| {
            let folder = root.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            let program = folder.join("python3");
            let answer = format!(
                "{{\"major\": 3, \"minor\": {minor}, \"executable\": \"{}\", \"client\": {client}, \"boto3\": {boto3}, \
                 \"folders\": []}}",
                program.display()
            );
            std::fs::write(&program, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            folder
        };
        let (bare, half, whole) =
            (python("a", 9, false, true), python("b", 10, true, false), python("c", 12, true, true));
        let found = async |path: &[&PathBuf]| {
            let places = Places::of_path(path.iter().map(|folder| (*folder).clone()).collect());
            search(&places, &[]).await.map(|found| found.default.runtime.minor)
        };
        assert_eq!(found(&[&bare, &half, &whole]).await.unwrap(), 12);
        assert_eq!(found(&[&bare, &half]).await.unwrap(), 10);
        let refused = found(&[&bare]).await.unwrap_err();
        assert!(matches!(&refused, PythonError::NoneFits { found, .. } if found.len() == 1 && found[0].1 == 9));
    }
}
