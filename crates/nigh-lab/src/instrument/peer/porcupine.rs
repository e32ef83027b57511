//! Porcupine, a checker of linearizability of others, in a program of a few lines (`tests/porcupine`) that `make peers`
//! builds: histories go in, and which objects no order explains comes out.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nigh_check::history::{History, Operation, OperationResult, State};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::PeerError;
use super::installed::cache_folder;
use crate::LabError;

const PEER: &str = "porcupine";
/// What the program is built from, in the order in which the script hashes it.
const SOURCES: [&str; 3] = [
    include_str!("../../../../../tests/porcupine/go.mod"),
    include_str!("../../../../../tests/porcupine/go.sum"),
    include_str!("../../../../../tests/porcupine/main.go"),
];

/// The program, as `scripts/install-peers.sh` has built it from these sources.
fn program() -> Result<PathBuf, PeerError> {
    let hash: String = Sha256::digest(SOURCES.concat()).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let path = cache_folder().join(format!("{PEER}-{hash}")).join(PEER);
    let missing = || PeerError::NotInstalled {
        peer: PEER,
        missing: path.display().to_string(),
        hint: "run `make peers`".to_owned(),
    };
    if path.is_file() { Ok(path) } else { Err(missing()) }
}

/// What porcupine says of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Operations that it judged.
    pub(crate) operations: u64,
    /// Objects that it judged.
    pub(crate) objects: u64,
    /// Objects that no order of their operations explains.
    pub(crate) broken: Vec<String>,
    /// Those that took too long.
    pub(crate) undecided: Vec<String>,
}

#[derive(Serialize)]
struct Line<'o> {
    object: &'o str,
    client: usize,
    begin: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    found: &'static str,
    state: State,
    writes: bool,
    made: State,
}

fn line<'o>(object: &'o str, client: usize, operation: &Operation) -> Line<'o> {
    let (found, state) = match operation.found {
        OperationResult::Anything => ("anything", None),
        OperationResult::Is(state) => ("is", state),
        OperationResult::IsNot(state) => ("is_not", state),
    };
    let Operation { begin, end, made, .. } = *operation;
    Line { object, client, begin, end, found, state, writes: made.is_some(), made: made.flatten() }
}

/// Has porcupine judge a history.
pub(crate) fn judge(history: &History) -> Result<Verdict, LabError> {
    let failed = |reason: String| LabError::Request { what: PEER.to_owned(), reason };
    let mut text = Vec::new();
    for (object, operations) in history.by_object() {
        for (client, operation) in operations.iter().enumerate() {
            let line = line(object, client, operation);
            serde_json::to_writer(&mut text, &line).map_err(|error| failed(error.to_string()))?;
            text.push(b'\n');
        }
    }
    let mut command = Command::new(program()?);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    // It reads everything before it says anything.
    let written = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(&text));
    let said = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !said.status.success() || written.is_err() {
        return Err(failed(String::from_utf8_lossy(&said.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&said.stdout).map_err(|error| failed(error.to_string()))
}
