//! Why an experiment or bench cannot be run.

use std::path::PathBuf;

use thiserror::Error;

use crate::instrument::peer::PeerError;
use crate::instrument::vm::VmError;

/// Why the laboratory stops.
#[derive(Debug, Error)]
pub enum LabError {
    /// A peer cannot be had.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A virtual machine gave no answer.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The node under test did not start or answer.
    #[error("the node under test failed: {0}")]
    Node(String),
    /// A request failed.
    #[error("{what}: {reason}")]
    Request {
        /// What was asked.
        what: String,
        /// Why it failed.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Something must be set up first.
    #[error("{missing} is missing; {hint}")]
    Missing {
        /// What is not there.
        missing: String,
        /// How to get it.
        hint: &'static str,
    },
    /// A function did not do its work.
    #[error("function {function} failed on {input}: {reason}")]
    Function {
        /// The function.
        function: String,
        /// The function's input.
        input: String,
        /// The function's own words.
        reason: String,
    },
    /// A run found what must not be: a broken promise, an escape, harm done.
    #[error("{0}; the report names the first of them")]
    Found(String),
    /// A simulation cannot be run.
    #[error("simulating {what}: {reason}")]
    Simulation {
        /// What was to be simulated.
        what: String,
        /// Why it cannot be.
        reason: String,
    },
    /// Ctrl-C.
    #[error("interrupted; {kept}")]
    Interrupted {
        /// What becomes of what was done.
        kept: &'static str,
    },
    /// An argument that clap cannot know to be wrong.
    #[error("{0}")]
    Usage(String),
    /// A chart cannot be drawn.
    #[error("chart: {0}")]
    Chart(String),
}

impl LabError {
    /// The exit code where the command line is wrong; clap's own.
    pub const USAGE: u8 = 2;

    /// For scripts: as `nigh --help` says.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => Self::USAGE,
            _ => 1,
        }
    }

    /// `words` ask for what this nigh-lab, built for the demonstration, does not have.
    #[cfg(not(feature = "all"))]
    #[must_use]
    pub fn left_out(words: &[std::ffi::OsString]) -> Self {
        let asked = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        Self::Usage(format!(
            "{asked} is left out of this nigh-lab, which `make demo` built; `cargo build --release --bins` builds all of it"
        ))
    }

    /// A file's reason.
    pub(crate) fn file(path: impl Into<PathBuf>, reason: &dyn std::fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }
}

/// Why a step of an experiment failed, by what it was about.
pub(crate) trait Tried<T> {
    /// The step was about the file or folder `path`.
    fn at(self, path: impl Into<PathBuf>) -> Result<T, LabError>;

    /// The step was about the node under test.
    fn of_node(self) -> Result<T, LabError>;
}

impl<T, E: std::fmt::Display> Tried<T> for Result<T, E> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T, LabError> {
        self.map_err(|error| LabError::file(path, &error))
    }

    fn of_node(self) -> Result<T, LabError> {
        self.map_err(|error| LabError::Node(error.to_string()))
    }
}
