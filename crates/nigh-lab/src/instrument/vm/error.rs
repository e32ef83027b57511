//! Why a kernel cannot be booted, or what became of it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a virtual machine gave no answer.
#[derive(Debug, Error)]
pub enum VmError {
    /// A program or kernel is not on this machine.
    #[error("{what} is missing on this machine; {hint}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        hint: &'static str,
    },
    /// A kernel's file is not what it should be.
    #[error("the kernel cannot be used: {0}")]
    Kernel(String),
    /// A file or program of the host failed.
    #[error("cannot {what} {path}: {source}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The machine ended without saying how its command ended, or had to be ended.
    #[error("the virtual machine {how}; its command's last words:\n{output}\nits console's:\n{console}")]
    NoAnswer {
        /// What happened.
        how: String,
        /// The last lines of its command.
        output: String,
        /// The last lines of its console.
        console: String,
    },
    /// The guest's command failed, or its answer makes no sense.
    #[error("in the virtual machine: {what}: {reason}")]
    Guest {
        /// What was run.
        what: String,
        /// What it said.
        reason: String,
    },
}

impl VmError {
    /// A reason why a kernel is refused.
    pub(super) fn kernel(reason: impl Into<String>) -> Self {
        Self::Kernel(reason.into())
    }

    /// An error of the host on `path`.
    pub(super) fn host(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Host { what, path, source }
    }

    /// Whether the guest's own kernel crashed.
    pub(super) fn is_kernel_crash(&self) -> bool {
        matches!(self, Self::NoAnswer { console, .. } if console.contains("Kernel panic"))
    }

    /// Whether the reason is only that something is not installed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}
