//! A part's history in a file, so that a checker can judge it again: lines of JSON, compressed by gzip.
//!
//! The first line says the format and how many invocations follow, a line each; then each line is an operation. The
//! operations of a part take a few hundred KiB.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use nigh_check::history::{History, Invocation, Moment, Operation, OperationResult, Value};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::instrument::error::Tried;

const FORMAT: u32 = 1;
/// The most lines that are read: more than any part writes.
const LINES_MAX: usize = 10_000_000;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    part: u32,
    invocations: usize,
}

/// When it was called, when it ended, and the invocation that called it.
type InvocationLine = (Moment, Option<Moment>, Option<usize>);

/// What an operation found or required.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Found {
    Anything,
    Is(Option<Value>),
    IsNot(Option<Value>),
}

/// What an operation did to its object.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Did {
    Read,
    /// A read after a fault.
    ReadBack,
    Wrote(Value),
    Deleted,
}

/// Object, invocation, begin, end, what was found, what was done.
type OperationLine = (String, Option<usize>, Moment, Option<Moment>, Found, Did);

fn line_of(operation: &Operation) -> OperationLine {
    let Operation { object, invocation, begin, end, found, made, is_last } = operation;
    let found = match *found {
        OperationResult::Anything => Found::Anything,
        OperationResult::Is(state) => Found::Is(state),
        OperationResult::IsNot(state) => Found::IsNot(state),
    };
    let did = match *made {
        Some(Some(value)) => Did::Wrote(value),
        Some(None) => Did::Deleted,
        None if *is_last => Did::ReadBack,
        None => Did::Read,
    };
    (object.clone(), *invocation, *begin, *end, found, did)
}

fn operation_of((object, invocation, begin, end, found, did): OperationLine) -> Operation {
    let found = match found {
        Found::Anything => OperationResult::Anything,
        Found::Is(state) => OperationResult::Is(state),
        Found::IsNot(state) => OperationResult::IsNot(state),
    };
    let (made, is_last) = match did {
        Did::Read => (None, false),
        Did::ReadBack => (None, true),
        Did::Wrote(value) => (Some(Some(value)), false),
        Did::Deleted => (Some(None), false),
    };
    Operation { object, invocation, begin, end, found, made, is_last }
}

/// Writes the history of a part.
pub(super) fn write(path: &Path, part: u32, history: &History) -> Result<(), LabError> {
    let file = File::create(path).at(path)?;
    let mut text = GzEncoder::new(BufWriter::new(file), Compression::default());
    let head = Head { format: FORMAT, part, invocations: history.invocations.len() };
    line(&mut text, &head).at(path)?;
    for Invocation { begin, end, caller } in &history.invocations {
        let invocation: InvocationLine = (*begin, *end, *caller);
        line(&mut text, &invocation).at(path)?;
    }
    for operation in &history.operations {
        line(&mut text, &line_of(operation)).at(path)?;
    }
    text.finish().and_then(|mut file| file.flush()).at(path)
}

fn line(text: &mut impl Write, line: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.write_all(b"\n")
}

/// Reads a history: the part's number, and what was done.
pub(super) fn read(path: &Path) -> Result<(u32, History), LabError> {
    let broken = |reason: &dyn std::fmt::Display| LabError::file(path, &format!("this is no part's history: {reason}"));
    let file = BufReader::new(GzDecoder::new(File::open(path).at(path)?));
    let mut lines = file.lines().take(LINES_MAX);
    let head = lines.next().ok_or_else(|| broken(&"it is empty"))?.map_err(|error| broken(&error))?;
    let head: Head = serde_json::from_str(&head).map_err(|error| broken(&error))?;
    if head.format != FORMAT {
        return Err(broken(&format!("it has format {}, and this program reads {FORMAT}", head.format)));
    }
    let mut history = History::default();
    for line in lines {
        let line = line.map_err(|error| broken(&error))?;
        if history.invocations.len() < head.invocations {
            let (begin, end, caller): InvocationLine = serde_json::from_str(&line).map_err(|error| broken(&error))?;
            history.invocations.push(Invocation { begin, end, caller });
        } else {
            history.operations.push(operation_of(serde_json::from_str(&line).map_err(|error| broken(&error))?));
        }
    }
    let count = history.invocations.len();
    let is_known = |invocation: Option<usize>| invocation.is_none_or(|one| one < count);
    let named = history.operations.iter().map(|one| one.invocation);
    if !named.chain(history.invocations.iter().map(|one| one.caller)).all(is_known) {
        return Err(broken(&"it names an invocation that is not in it"));
    }
    Ok((head.part, history))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written_and_another_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.gz");
        let operation = |found, made, is_last| Operation {
            object: "part-3/001/07".to_owned(),
            invocation: Some(1),
            begin: 10,
            end: Some(20),
            found,
            made,
            is_last,
        };
        let history = History {
            operations: vec![
                operation(OperationResult::Is(None), None, false),
                operation(OperationResult::Is(Some(4)), None, true),
                operation(OperationResult::IsNot(Some(4)), Some(None), false),
                Operation { end: None, invocation: None, ..operation(OperationResult::Anything, Some(Some(5)), false) },
            ],
            invocations: vec![
                Invocation { begin: 1, end: None, caller: None },
                Invocation { begin: 2, end: Some(9), caller: Some(0) },
            ],
        };
        write(&path, 3, &history).unwrap();
        assert_eq!(read(&path).unwrap(), (3, history.clone()));
        let unknown = History { invocations: Vec::new(), ..history };
        write(&path, 3, &unknown).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("an invocation that is not in it"));
        std::fs::write(&path, "no gzip").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("no part's history"));
    }
}
