//! Memory of a sandbox: what its function booked, and what it is granted now.

use nigh_terms::ByteSize;
use thiserror::Error;

/// The memory of one sandbox. `memory now <= booked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What it may use now.
    pub memory: ByteSize,
    /// What it may grow to.
    pub booked: ByteSize,
}

impl Grant {
    /// All that was booked.
    #[must_use]
    pub const fn full(booked: ByteSize) -> Self {
        Self { memory: booked, booked }
    }
}

/// Why a sandbox's memory could not be read or set.
#[derive(Debug, Error)]
pub enum SandboxMemoryError {
    /// The kernel cannot take that much back now; the limit stays what it was.
    #[error(
        "the limit cannot be lowered to {target}: {used} are in use and cannot be reclaimed; the limit stays {current}"
    )]
    CannotShrink {
        /// What was asked.
        target: ByteSize,
        /// The limit that stands.
        current: ByteSize,
        /// What is in use.
        used: ByteSize,
    },
    /// There is no cgroup for this sandbox.
    #[error("memory is not controlled: {0}")]
    NotControlled(&'static str),
    /// The file's own reason.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// Called with what is in use when a sandbox comes to its limit; it must not block.
pub type OnPressure = Box<dyn Fn(ByteSize) + Send + Sync>;

/// The memory of a running sandbox. Each call is one read or write of an open cgroup file.
pub trait SandboxMemory: Send + Sync {
    /// Sets the limit. On cgroup v1 a sandbox that reaches it loses a process, unless `on_pressure` is set and it is below the
    /// ceiling: then its page faults wait until the limit is raised, and system calls that touch its memory fail. On v2 the
    /// kernel throttles it, for up to two seconds at a time, until the limit is raised or it reaches the ceiling, where it
    /// loses a process. It can be ended at any time.
    ///
    /// # Errors
    /// `CannotShrink` leaves the limit as it was.
    fn set_limit(&self, limit: ByteSize) -> Result<(), SandboxMemoryError>;
    /// Sets the ceiling, at which it loses a process. It must not be below the limit.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn set_ceiling(&self, _ceiling: ByteSize) -> Result<(), SandboxMemoryError> {
        Ok(())
    }
    /// The most that it has used since `reset_peak`. On cgroup v2 before Linux 6.12 that is an estimate, unless it is the most ever
    /// (`cgroup::peak`).
    ///
    /// # Errors
    /// If there is no control or the file cannot be read.
    fn peak(&self) -> Result<ByteSize, SandboxMemoryError>;
    /// Begins a new measurement.
    ///
    /// # Errors
    /// If there is no control, or the kernel has no peak (cgroup v2 before Linux 5.19).
    fn reset_peak(&self) -> Result<(), SandboxMemoryError>;
    /// What is in use now.
    ///
    /// # Errors
    /// If there is no control or the file cannot be read.
    fn used(&self) -> Result<ByteSize, SandboxMemoryError>;
    /// The number of processes the kernel has killed in it for want of memory.
    ///
    /// # Errors
    /// If there is no control or the file cannot be read.
    fn oom_kills(&self) -> Result<u64, SandboxMemoryError>;
    /// The part of it that the kernel reclaims by itself when memory is short: pages of files.
    ///
    /// # Errors
    /// If there is no control or the file cannot be read.
    fn page_cache(&self) -> Result<ByteSize, SandboxMemoryError> {
        Err(SandboxMemoryError::NotControlled("pages of files are not counted apart"))
    }
    /// How often it has reached its limit in a system call that may have failed. Always 0 on cgroup v2, where none fails.
    ///
    /// # Errors
    /// If there is no control or the file cannot be read.
    fn limit_hits(&self) -> Result<u64, SandboxMemoryError> {
        Ok(0)
    }
    /// True where a system call fails that needs memory beyond the limit (cgroup v1).
    fn fails_at_limit(&self) -> bool {
        false
    }
    /// Reclaims memory of a frozen sandbox: pages of files, and others where there is swap. It blocks.
    ///
    /// # Errors
    /// If the kernel has no such means, or refuses.
    fn reclaim(&self) -> Result<(), SandboxMemoryError> {
        Err(SandboxMemoryError::NotControlled("nothing can be reclaimed"))
    }
    /// Calls `notice` when the sandbox comes to its limit. One at a time; a second replaces the first.
    ///
    /// # Errors
    /// If there is no control.
    fn on_pressure(&self, notice: OnPressure) -> Result<(), SandboxMemoryError>;
}
