//! The memory of a sandbox: its booking, and its present grant.

use nigh_terms::ByteSize;
use thiserror::Error;

/// The memory of one sandbox. `memory now <= booked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The most that it may use now.
    pub memory: ByteSize,
    /// The booking: the most that it may grow to.
    pub booked: ByteSize,
}

impl Grant {
    /// A grant of the whole booking.
    #[must_use]
    pub const fn full(booked: ByteSize) -> Self {
        Self { memory: booked, booked }
    }
}

/// Why a sandbox's memory could not be read or set.
#[derive(Debug, Error)]
pub enum SandboxMemoryError {
    /// The kernel cannot reclaim enough memory now; the limit stays.
    #[error(
        "the limit cannot be lowered to {target}: {used} are in use and cannot be reclaimed; the limit stays {current}"
    )]
    CannotShrink {
        /// The requested limit.
        target: ByteSize,
        /// The present limit.
        current: ByteSize,
        /// The memory in use.
        used: ByteSize,
    },
    /// There is no cgroup for this sandbox.
    #[error("memory is not controlled: {0}")]
    NotControlled(&'static str),
    /// A cgroup file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// Called with the memory in use when a sandbox reaches its limit. It must not block.
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
    /// Sets the ceiling, at which the sandbox loses a process. It must not be below the limit.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn set_ceiling(&self, _ceiling: ByteSize) -> Result<(), SandboxMemoryError> {
        Ok(())
    }
    /// The most that the sandbox has used since `reset_peak`. On cgroup v2 before Linux 6.12 this is an estimate,
    /// unless it is the highest use ever (`cgroup::peak`).
    ///
    /// # Errors
    /// If the sandbox has no memory controller, or the file cannot be read.
    fn peak(&self) -> Result<ByteSize, SandboxMemoryError>;
    /// Begins a new measurement of the peak.
    ///
    /// # Errors
    /// If the sandbox has no memory controller, or the kernel measures no peak (cgroup v2 before Linux 5.19).
    fn reset_peak(&self) -> Result<(), SandboxMemoryError>;
    /// The memory in use now.
    ///
    /// # Errors
    /// If the sandbox has no memory controller, or the file cannot be read.
    fn used(&self) -> Result<ByteSize, SandboxMemoryError>;
    /// Number of the sandbox's processes that the kernel has killed because memory ran out.
    ///
    /// # Errors
    /// If the sandbox has no memory controller, or the file cannot be read.
    fn oom_kills(&self) -> Result<u64, SandboxMemoryError>;
    /// The part of the memory in use that the kernel reclaims by itself when memory is short: pages of files.
    ///
    /// # Errors
    /// If the sandbox has no memory controller, or the file cannot be read.
    fn page_cache(&self) -> Result<ByteSize, SandboxMemoryError> {
        Err(SandboxMemoryError::NotControlled("pages of files are not counted apart"))
    }
    /// Number of times that the sandbox has reached its limit in a system call that may have failed. Always 0 on cgroup
    /// v2, where none fails.
    ///
    /// # Errors
    /// If the sandbox has no memory controller, or the file cannot be read.
    fn limit_hits(&self) -> Result<u64, SandboxMemoryError> {
        Ok(0)
    }
    /// True if a system call that needs memory beyond the limit fails (cgroup v1).
    fn fails_at_limit(&self) -> bool {
        false
    }
    /// Reclaims memory of a frozen sandbox: pages of files, and others if there is swap. Blocks.
    ///
    /// # Errors
    /// If the kernel has no such means, or refuses.
    fn reclaim(&self) -> Result<(), SandboxMemoryError> {
        Err(SandboxMemoryError::NotControlled("the kernel cannot reclaim memory of this sandbox"))
    }
    /// Calls `notice` when the sandbox reaches its limit. A later call replaces the notice of an earlier one.
    ///
    /// # Errors
    /// If the sandbox has no memory controller.
    fn on_pressure(&self, notice: OnPressure) -> Result<(), SandboxMemoryError>;
}
