//! Why a kernel cannot be booted, or what became of it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a virtual machine gave no answer.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum VmError {
    #[error("{what} is missing on this machine; {hint}")]
    Missing { what: String, hint: &'static str },
    #[error("the kernel cannot be used: {0}")]
    Kernel(String),
    /// A file or program of the host failed.
    #[error("cannot {what} {path}: {source}")]
    Host { what: &'static str, path: PathBuf, source: io::Error },
    /// The machine ended without saying how its command ended, or had to be ended.
    #[error("the virtual machine {how}; its command's last words:\n{output}\nits console's:\n{console}")]
    NoAnswer { how: String, output: String, console: String },
    /// The guest's command failed, or its answer makes no sense.
    #[error("in the virtual machine: {what}: {reason}")]
    Guest { what: String, reason: String },
}

impl VmError {
    pub(super) fn kernel(reason: impl Into<String>) -> Self {
        Self::Kernel(reason.into())
    }

    pub(super) fn host(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Host { what, path, source }
    }

    pub(super) fn is_kernel_crash(&self) -> bool {
        matches!(self, Self::NoAnswer { console, .. } if console.contains("Kernel panic"))
    }

    /// Whether the reason is only that something is not installed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}
