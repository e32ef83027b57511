//! Why a command fails: one line for people, one exit code for scripts.

use std::io;
use std::path::PathBuf;

use nigh_engine::{JournalError, StateError};
use nigh_node::backup::archive::ArchiveError;
use nigh_node::backup::restore::RestoreError;
use nigh_node::backup::source::BackupError;
use nigh_node::client::ClientError;
use nigh_node::config::ConfigError;
use nigh_node::credentials::CredentialsError;
use nigh_node::endpoints::EndpointsError;
use nigh_node::node::NodeError;
use nigh_node::state_folder::StateFolderError;
use nigh_node::status::DrainStatus;
use nigh_rpc::certificates::CertificateError;
use nigh_terms::FunctionName;
use thiserror::Error;

use crate::build_error::BuildError;

/// Refused, or failed.
const FAILED: u8 = 1;
/// The command line is wrong; clap's own code.
pub(crate) const USAGE: u8 = 2;
/// No node runs, or it is draining.
const NOT_RUNNING: u8 = 3;
/// What the Lambda door calls a function that is not there.
const NO_FUNCTION: &str = "ResourceNotFoundException";

/// Why a command fails.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Endpoints(#[from] EndpointsError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Node(#[from] Box<NodeError>),
    #[error(transparent)]
    StateFolder(#[from] StateFolderError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The program of benches and experiments is not installed.
    #[error(
        "nigh-lab, the program that does this, is neither beside {} nor in PATH; `make install` in Nigh's sources \
         installs it, and `cargo build --release -p nigh-lab` builds it",
        .beside.display()
    )]
    NoLab { beside: PathBuf },
    /// The node is draining.
    #[error("Nigh at {} is draining and rejects new requests: {draining}", .root.display())]
    Draining { root: PathBuf, draining: DrainStatus },
    /// A function that is not there.
    #[error("there is no function {name}; `nigh functions ls` lists them{done}")]
    NoFunction {
        name: FunctionName,
        /// The end of the line: what was done before; empty for nothing.
        done: String,
    },
    /// An argument that clap cannot know to be wrong.
    #[error("{0}")]
    Usage(String),
    /// A text that cannot be read: the parser points at the place by further lines.
    #[error("{0}")]
    Unreadable(String),
    /// The node tried, and says why it could not.
    #[error("{0}")]
    Failed(String),
    /// A local file or stream.
    #[error("{what}: {source}")]
    Local { what: String, source: io::Error },
    /// Standard output.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// Standard output, as JSON.
    #[error("an answer cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl CliError {
    /// A local file's reason.
    pub(crate) fn local(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Local { what, source }
    }

    /// The refusal of the Lambda door, which was asked about the function `name`.
    pub(crate) fn of_function(name: &FunctionName) -> impl FnOnce(ClientError) -> Self {
        let name = name.clone();
        move |error: ClientError| {
            let is_missing = matches!(&error, ClientError::Refused { code, .. } if code == NO_FUNCTION);
            if is_missing { Self::NoFunction { name, done: String::new() } } else { error.into() }
        }
    }

    /// For scripts; documented in `nigh --help`.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Unreadable(_) => USAGE,
            Self::Endpoints(EndpointsError::NotRunning(_) | EndpointsError::Draining(_))
            | Self::Draining { .. }
            | Self::Client(ClientError::Connect { .. }) => NOT_RUNNING,
            _ => FAILED,
        }
    }

    /// What a door calls it, for programs.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Client(ClientError::Refused { code, .. }) => Some(code),
            Self::NoFunction { .. } => Some(NO_FUNCTION),
            _ => None,
        }
    }
}
