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
    #[error("the node under test: {0}")]
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
        /// Its input.
        input: String,
        /// What it said.
        reason: String,
    },
    /// Functions are not kept apart.
    #[error("{succeeded} escape attempts succeeded, and {broken} went wrong themselves; the report names them")]
    Escaped {
        /// Attempts that got something.
        succeeded: usize,
        /// Attempts that show nothing.
        broken: usize,
    },
    /// A tenant noticed another's lies.
    #[error("{harm} times an honest tenant, or the node, was harmed by another's lies; the report says by which")]
    Harmed {
        /// How often.
        harm: usize,
    },
    /// Crashes broke promises.
    #[error(
        "{lost} reads miss acknowledged writes, {stale} are old, {mixed} are of no one write, and {listings_wrong} \
         listings are wrong; the report names the first"
    )]
    Crash {
        /// Reads after a start, or of the store, that miss an acknowledged write.
        lost: u64,
        /// Old reads under load.
        stale: u64,
        /// Objects that are of no one write.
        mixed: u64,
        /// Listings that differ from what is read.
        listings_wrong: u64,
    },
    /// Faults of a cluster broke promises.
    #[error(
        "{lost} reads miss acknowledged writes, {stale} are old, {mixed} objects are of no one write, and {not_recovered} \
         times the cluster was not whole again in time; the report names the first"
    )]
    ClusterFaults {
        /// Reads after the faults that miss an acknowledged write.
        lost: u64,
        /// Old reads, and objects whose operations no order explains.
        stale: u64,
        /// Objects that are of no one write.
        mixed: u64,
        /// Clusters or objects that were not whole again in time.
        not_recovered: u64,
    },
    /// Readers and writers beside Nigh met what they must not, or the control showed that this could not be seen.
    #[error(
        "{stale} reads are old, {lost} writes are lost, {mixed} objects are of no one write, and {blind} rows of the \
         control found nothing; the report names the first"
    )]
    Outside {
        /// Old reads where none may be.
        stale: u64,
        /// Lost writes where none may be.
        lost: u64,
        /// Objects that are of no one write.
        mixed: u64,
        /// Rows without a guard that show neither.
        blind: u64,
    },
    /// Storms broke promises.
    #[error("{broken} storms break a promise; the report names them")]
    Storm {
        /// How many.
        broken: u64,
    },
    /// The consistency contract was not confirmed.
    #[error(
        "{broken} worlds break a promise or cannot finish, {unfinished} were not explored whole, and {unmissed} rules \
         can be left out unnoticed; the report names them"
    )]
    Contract {
        /// Worlds with a counterexample.
        broken: usize,
        /// Worlds that took too long.
        unfinished: usize,
        /// Rules without a counterexample.
        unmissed: usize,
    },
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

    /// A file's reason.
    pub(crate) fn file(path: impl Into<PathBuf>, reason: &dyn std::fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }
}

/// Why a step of an experiment failed, by what it was about.
pub(crate) trait Tried<T> {
    /// It was about the file or folder `path`.
    fn at(self, path: impl Into<PathBuf>) -> Result<T, LabError>;

    /// It was about the node under test.
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
