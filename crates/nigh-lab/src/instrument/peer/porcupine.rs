//! Porcupine, a checker of linearizability of others, in a program of a few lines (`tests/porcupine`) that `make peers`
//! builds: histories go in, and which objects no order explains comes out.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nigh_check::history::{History, Operation, OperationResult};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::PeerError;
use super::installed::{HINT, cache_folder, hash_of};
use crate::LabError;
use crate::instrument::made_up;

const PEER: &str = "porcupine";
/// What the program is built from, in the order in which the script hashes it.
const SOURCES: [&str; 3] = [
    include_str!("../../../../../tests/porcupine/go.mod"),
    include_str!("../../../../../tests/porcupine/go.sum"),
    include_str!("../../../../../tests/porcupine/main.go"),
];

/// The program, as `scripts/install-peers.sh` has built it from these sources.
fn program() -> Result<PathBuf, PeerError> {
    let path = cache_folder().join(format!("{PEER}-{}", hash_of(&SOURCES.concat()))).join(PEER);
    if path.is_file() { Ok(path) } else { Err(PeerError::not_installed(PEER, path.display(), HINT)) }
}

/// Fails if the program is not installed: before a long run, whose history it is to judge.
pub(crate) fn expect_installed() -> Result<(), PeerError> {
    program().map(drop)
}

/// What porcupine says of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Operations and objects that it judged.
    pub(crate) operations: u64,
    pub(crate) objects: u64,
    /// Objects that no order of their operations explains.
    pub(crate) broken: Vec<String>,
    /// Those that took too long, and how many operations each has.
    pub(crate) undecided: BTreeMap<String, u64>,
}

fn line(object: &str, client: usize, operation: &Operation) -> String {
    let (found, state) = match operation.found {
        OperationResult::Anything => ("anything", None),
        OperationResult::Is(state) => ("is", state),
        OperationResult::IsNot(state) => ("is_not", state),
    };
    let Operation { begin, end, made, .. } = *operation;
    let line = json!({
        "object": object, "client": client, "begin": begin, "end": end,
        "found": found, "state": state, "writes": made.is_some(), "made": made.flatten(),
    });
    format!("{line}\n")
}

/// Has porcupine judge a history.
pub(crate) fn judge(history: &History) -> Result<Verdict, LabError> {
    let failed = |reason: &dyn std::fmt::Display| made_up::failed(PEER, reason);
    let mut text = String::new();
    for (object, operations) in history.by_object() {
        for (client, operation) in operations.iter().enumerate() {
            text += &line(object, client, operation);
        }
    }
    let mut command = Command::new(program()?);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stdin = child.stdin.take();
    // It reads everything before it says anything.
    let written = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let said = child.wait_with_output().map_err(|error| failed(&error))?;
    if !said.status.success() || written.is_err() {
        return Err(failed(&String::from_utf8_lossy(&said.stderr).trim()));
    }
    serde_json::from_slice(&said.stdout).map_err(|error| failed(&error))
}
