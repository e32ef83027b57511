//! The pool's answers, commands, limits and counts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, FunctionName};

use crate::scheduler::dispatch_queue::DispatchTicket;

/// Names an invocation that waits.
pub type Ticket = DispatchTicket;

/// Names a start, from its command until the sandbox is made or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub(super) u64);

/// The answer to an invocation that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAnswer {
    /// The invocation waits; a later command names this ticket.
    Waiting(Ticket),
    /// The invocation cannot wait, for this reason.
    Refused(String),
    /// The invocation cannot wait: the function's reserved concurrency is used up.
    OverReserved(usize),
    /// The pool is closed.
    Closed,
}

/// What the shell must do for the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<S> {
    /// Run this invocation in this sandbox, which no other uses, once the sandboxes in `after` have ended.
    Run {
        /// The ticket of the invocation.
        ticket: Ticket,
        /// The invocation's sandbox.
        sandbox: S,
        /// The sandboxes that must end before.
        after: Vec<S>,
    },
    /// Make a sandbox, once those in its `after` have ended.
    Start(Start<S>),
    /// Freeze this sandbox at once: an invocation waits for the memory that it booked.
    Freeze(S),
    /// The invocation with this ticket has waited too long.
    Refuse {
        /// The ticket of the invocation.
        ticket: Ticket,
        /// What the invocation waited for.
        waits_for: WaitsFor,
    },
}

/// A sandbox to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start<S> {
    /// The name of the start.
    pub id: StartId,
    /// The sandbox's function.
    pub function: Arc<Function>,
    /// The invocation that it is made for; None if it is made ahead. Another invocation may get it.
    pub ticket: Option<Ticket>,
    /// The sandboxes that must end before.
    pub after: Vec<S>,
    /// Why it is made.
    pub reason: ColdReason,
}

/// Why a sandbox is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColdReason {
    /// The function has not been invoked since the node began, or not for a long time.
    First,
    /// All sandboxes of the function (this number) are busy, and waiting for one would take longer.
    Busy(usize),
    /// The function's last sandbox was ended for this reason.
    Ended(SandboxEndReason),
    /// An invocation of the function is expected.
    Ahead,
}

/// Why an idle sandbox was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxEndReason {
    /// This function needed its room.
    To(FunctionName),
    /// The sandbox was idle for longer than sandboxes are kept.
    KeepAlive,
    /// The sandbox's function has changed.
    Changed,
    /// Running sandboxes grew, or the cache would use its memory better.
    Memory,
    /// The sandbox has ended by itself, or was ended with its invocation.
    Died,
}

impl SandboxEndReason {
    /// The reason's name in metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::To(_) => "room",
            Self::KeepAlive => "keep_alive",
            Self::Changed => "changed",
            Self::Memory => "memory",
            Self::Died => "died",
        }
    }
}

impl ColdReason {
    /// The reason's name in metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Busy(_) => "busy",
            Self::Ended(lost) => lost.label(),
            Self::Ahead => "ahead",
        }
    }
}

impl fmt::Display for ColdReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => write!(f, "the function had none"),
            Self::Busy(1) => write!(f, "its one sandbox was busy, and waiting for it would have taken longer"),
            Self::Busy(busy) => {
                write!(f, "its {busy} sandboxes were busy, and waiting for one would have taken longer")
            }
            Self::Ended(SandboxEndReason::To(other)) => {
                write!(f, "its last one had been ended to make room for {other}")
            }
            Self::Ended(SandboxEndReason::KeepAlive) => {
                write!(f, "its last one had been idle for as long as sandboxes are kept")
            }
            Self::Ended(SandboxEndReason::Changed) => write!(f, "the function had changed since its last one was made"),
            Self::Ended(SandboxEndReason::Memory) => write!(f, "its last one had been ended for its memory"),
            Self::Ended(SandboxEndReason::Died) => write!(f, "its last one had ended"),
            Self::Ahead => write!(f, "it was expected to be invoked"),
        }
    }
}

/// What an invocation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitsFor {
    /// A turn: the most invocations run already.
    Turn,
    /// A sandbox of its function that runs.
    Sandbox,
    /// A sandbox of its function that is being made.
    Making,
    /// A start: as many sandboxes are being made as there are processors.
    Starts,
    /// Memory that running sandboxes have booked.
    Memory,
    /// Room: to get it, often used sandboxes of other functions would have to end.
    Room,
}

impl WaitsFor {
    /// The name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Sandbox => "sandbox",
            Self::Making => "making",
            Self::Starts => "starts",
            Self::Memory => "memory",
            Self::Room => "room",
        }
    }

    /// The reason in words, after "the node".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Turn => "ran as many invocations as it may",
            Self::Sandbox => "had all sandboxes of the function busy",
            Self::Making => "was making a sandbox of the function",
            Self::Starts => "was making as many sandboxes as it has processors",
            Self::Memory => "had not enough memory beside the running sandboxes",
            Self::Room => "would have had to end sandboxes that others need more",
        }
    }
}

/// The limits of a node's sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// The most sandboxes, idle ones included.
    pub sandboxes_max: usize,
    /// The memory of all sandboxes, which is also the most that a function can book.
    pub memory_max: ByteSize,
    /// What the cache lends in addition, if running sandboxes book more or idle ones hold more.
    pub lent_max: ByteSize,
    /// The most invocations that run at a time.
    pub invocations_max: usize,
    /// The most invocations that wait, beyond those that may run.
    pub waiting_max: usize,
    /// How long an invocation may wait.
    pub wait_max: Duration,
    /// Number of processors; at most as many sandboxes are made at a time.
    pub processors: usize,
}

impl PoolLimits {
    /// The most memory of all sandboxes, with what the cache lends.
    #[must_use]
    pub fn memory(&self) -> ByteSize {
        self.memory_max + self.lent_max
    }

    /// Lambda's limits and this project's defaults, without memory.
    pub const LAMBDA: Self = Self {
        sandboxes_max: 256,
        memory_max: ByteSize::ZERO,
        lent_max: ByteSize::ZERO,
        invocations_max: 256,
        waiting_max: 1024,
        wait_max: Duration::from_secs(10),
        processors: 1,
    };
}

/// The present counts of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Number of sandboxes, from the start's command until they are gone.
    pub sandboxes: usize,
    /// Number of idle sandboxes.
    pub idle: usize,
    /// Number of sandboxes that are being made.
    pub starting: usize,
    /// The bookings of the sandboxes that are being made, run, or are not frozen yet.
    pub booked: ByteSize,
    /// The memory in use by frozen sandboxes.
    pub idle_held: ByteSize,
    /// The bookings of the frozen sandboxes, which count when they run.
    pub idle_booked: ByteSize,
    /// Number of pre-warmed sandboxes, from the booking of their room until they end or become a function's.
    pub stems: usize,
    /// The bookings of the pre-warmed sandboxes.
    pub prewarmed: ByteSize,
    /// Number of invocations that run.
    pub running: usize,
    /// Number of invocations that wait for their turn, or for a sandbox.
    pub waiting: usize,
}
