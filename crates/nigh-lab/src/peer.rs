//! Other people's servers, run here to be measured or stood upon: real ones, each from its own folder and ports.

pub mod swift;

use std::path::PathBuf;

use thiserror::Error;

/// Why a peer cannot run.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum PeerError {
    #[error("{peer} is not installed: {missing} is missing. Hint: {hint}")]
    NotInstalled { peer: &'static str, missing: String, hint: String },
    #[error("{peer}: {operation} {path}: {source}")]
    File { peer: &'static str, operation: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{peer}: {program} cannot be started: {source}")]
    Start { peer: &'static str, program: String, source: std::io::Error },
    #[error("{peer}: {program} ended at once ({status}): {output}")]
    Ended { peer: &'static str, program: String, status: String, output: String },
    #[error("{peer}: not healthy after {seconds} s: {reason}; its output is in {logs}")]
    NotHealthy { peer: &'static str, seconds: u64, reason: String, logs: PathBuf },
}
