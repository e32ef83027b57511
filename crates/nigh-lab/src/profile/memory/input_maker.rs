//! Makes inputs, in a process of the functions' own Python, which has the packages for pictures, sound and films.
//!
//! The process makes one file at a time. The maker reads and removes the file at once; the inputs are in the store.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::inputs::MadeUp;
use crate::LabError;
use crate::instrument::error::Tried;

const PROGRAM: &str = include_str!("make_inputs.py");

/// A running maker; it ends when it is dropped.
pub(super) struct InputMaker {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    file: PathBuf,
}

/// An input's bytes, and what its header says.
pub(super) struct Made {
    pub(super) bytes: Vec<u8>,
    pub(super) features: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MakerReply {
    Made { features: Map<String, Value> },
    Failed { error: String },
}

impl InputMaker {
    /// Starts it; its program and its files are in `folder`.
    pub(super) fn start(python: &Path, folder: &Path) -> Result<Self, LabError> {
        let program = folder.join("make_inputs.py");
        std::fs::write(&program, PROGRAM).at(&program)?;
        let mut child = Command::new(python)
            .arg(&program)
            .env("OMP_NUM_THREADS", "1")
            .env("OPENBLAS_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .at(python)?;
        let piped = child.stdin.take().zip(child.stdout.take());
        let (asks, answers) = piped.ok_or_else(|| LabError::file(python, &"it has no pipes"))?;
        Ok(Self { child, asks: Some(asks), answers: BufReader::new(answers), file: folder.join("made") })
    }

    pub(super) fn make(&mut self, input: &MadeUp) -> Result<Made, LabError> {
        let failed = |reason: String| LabError::Request { what: format!("making {}", input.id), reason };
        let mut asked = serde_json::to_value(input).map_err(|error| failed(error.to_string()))?;
        asked["path"] = Value::String(self.file.display().to_string());
        let asks = self.asks.as_mut().ok_or_else(|| failed("the maker has ended".to_owned()))?;
        writeln!(asks, "{asked}").and_then(|()| asks.flush()).map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        let features = match serde_json::from_str(&line) {
            Ok(MakerReply::Made { features }) => features,
            Ok(MakerReply::Failed { error }) => return Err(failed(error)),
            Err(error) => return Err(failed(format!("{error} in {line:?}"))),
        };
        let bytes = std::fs::read(&self.file).at(&self.file)?;
        std::fs::remove_file(&self.file).at(&self.file)?;
        Ok(Made { bytes, features })
    }
}

impl Drop for InputMaker {
    fn drop(&mut self) {
        // The process ends when its standard input is closed.
        drop(self.asks.take());
        let _ended = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::inputs::Pool;
    use super::*;
    use crate::skipped::skip;

    #[test]
    fn an_input_of_each_pool_is_made_and_its_header_says_what_is_promised() {
        let test = "an_input_of_each_pool_is_made_and_its_header_says_what_is_promised";
        let python = std::env::var_os("NIGH_TEST_PYTHON").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/python/bin/python3"),
            PathBuf::from,
        );
        let has_all = Command::new(&python).args(["-c", "import imageio_ffmpeg, numpy, PIL"]).output();
        if !has_all.is_ok_and(|output| output.status.success()) {
            return skip(test, format_args!("{} has no packages of the functions; run make deps", python.display()));
        }
        let folder = tempfile::tempdir().unwrap();
        let mut maker = InputMaker::start(&python, folder.path()).unwrap();
        for pool in [
            Pool::Pictures,
            Pool::Waves,
            Pool::Sounds,
            Pool::Speech,
            Pool::Films,
            Pool::Texts,
            Pool::Tables,
            Pool::Records,
            Pool::Matrices,
        ] {
            // The smallest of some, of each format that is among them.
            let mut few: Vec<MadeUp> = (0..40).map(|number| pool.input(1, number)).collect();
            few.sort_by(|one, other| one.content.amount().total_cmp(&other.content.amount()));
            for input in &few[..6] {
                let made = maker.make(input).unwrap();
                assert!(!made.bytes.is_empty(), "{input:?}");
                let names: Vec<&str> = made.features.keys().map(String::as_str).collect();
                let mut promised = pool.features().to_vec();
                promised.sort_unstable();
                assert_eq!(names, promised, "{input:?}");
                assert_eq!(maker.make(input).unwrap().bytes.len(), made.bytes.len(), "{input:?}");
            }
        }
    }
}
