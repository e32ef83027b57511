//! Why code cannot be made ready: what was tried, the tool's own words, and what to do.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use thiserror::Error;

/// Why code cannot be made ready.
#[derive(Debug, Error)]
pub(crate) enum BuildError {
    /// The tool is not installed.
    #[error("{file} needs {tool}, which is not here: {hint}")]
    NoTool { file: &'static str, tool: &'static str, hint: String },
    /// The tool failed.
    #[error("{what}: {tool} ended with {status}\n{}{hint}", indented(.said))]
    Failed { what: String, tool: String, status: ExitStatus, said: Vec<String>, hint: String },
    /// The tool did not make what it should.
    #[error("{0}")]
    Unusable(String),
    /// The description of the dependencies is not understood.
    #[error("{file}: {why}")]
    Description { file: &'static str, why: String },
    /// The system's reason.
    #[error("{what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

impl BuildError {
    /// The system's reason for what was tried on `path`.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
