//! What a pool is asked, what it answers, and what it commands.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, FunctionName};

use crate::scheduler::dispatch_queue::DispatchTicket;

/// Names an invocation that waits.
pub type Ticket = DispatchTicket;

/// Names a start, from its promise until the sandbox is made or will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub(super) u64);

/// The answer to an invocation that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAnswer {
    /// It waits under this ticket until a command names it.
    Waiting(Ticket),
    /// It cannot wait, for this reason.
    Refused(String),
    /// It cannot wait: as many run as are reserved for its function.
    OverReserved(usize),
    /// Nothing is admitted any more.
    Closed,
}

/// What the pool has its shell do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<S> {
    /// The invocation with this ticket runs in this sandbox, which is its alone, once those in `after` are ended.
    Run {
        /// The invocation.
        ticket: Ticket,
        /// Its sandbox.
        sandbox: S,
        /// The sandboxes that end before it runs.
        after: Vec<S>,
    },
    /// A sandbox is to be made, once those in `after` are ended.
    Start(Start<S>),
    /// This sandbox is to be frozen at once: an invocation waits for the memory that it booked.
    Freeze(S),
    /// The invocation with this ticket has waited too long.
    Refuse {
        /// The invocation.
        ticket: Ticket,
        /// What it waited for.
        waits_for: WaitsFor,
    },
}

/// A sandbox that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start<S> {
    /// Its name until it is made.
    pub id: StartId,
    /// Its function.
    pub function: Arc<Function>,
    /// The invocation that it is made for; None if it is made ahead. Another invocation may get it.
    pub ticket: Option<Ticket>,
    /// The sandboxes that end before it is made.
    pub after: Vec<S>,
    /// Why it is made.
    pub reason: ColdReason,
}

/// Why a sandbox is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColdReason {
    /// The function has not been invoked since the node began, or not for long.
    First,
    /// All sandboxes of the function are busy, and waiting for one would take longer.
    Busy(usize),
    /// The last sandbox of the function was ended, for this reason.
    Ended(SandboxEndReason),
    /// The function was expected to be invoked.
    Ahead,
}

/// Why an idle sandbox was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxEndReason {
    /// For the room of this function.
    To(FunctionName),
    /// It was idle for as long as sandboxes are kept.
    KeepAlive,
    /// Its function has changed.
    Changed,
    /// Running sandboxes grew, or the cache uses its memory better.
    Memory,
    /// It has ended by itself, or was ended with its invocation.
    Died,
}

impl SandboxEndReason {
    /// The reason as metrics name it.
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
    /// The reason as metrics name it.
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
    /// A turn: as many invocations run as may.
    Turn,
    /// A sandbox of its function that runs.
    Sandbox,
    /// A sandbox of its function that is being made.
    Making,
    /// A start: as many sandboxes are being made as there are processors.
    Starts,
    /// Memory that running sandboxes have booked.
    Memory,
    /// Room: sandboxes of other functions would have to end that are called often.
    Room,
}

impl WaitsFor {
    /// As metrics name it.
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

    /// In words, after "the node".
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

/// What a node's sandboxes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Sandboxes, idle ones included.
    pub sandboxes_max: usize,
    /// The memory of all sandboxes: no function books more.
    pub memory_max: ByteSize,
    /// What the cache lends beside that, if running sandboxes book more or idle ones hold more.
    pub lent_max: ByteSize,
    /// Invocations that run at once.
    pub invocations_max: usize,
    /// Invocations that may wait beside those that may run.
    pub waiting_max: usize,
    /// How long each may wait.
    pub wait_max: Duration,
    /// Processors: so many sandboxes are made at once.
    pub processors: usize,
}

impl PoolLimits {
    /// What all sandboxes may take.
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

/// What the pool holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Sandboxes, from their promise until they are gone.
    pub sandboxes: usize,
    /// Those of them that are idle.
    pub idle: usize,
    /// Those of them that are being made.
    pub starting: usize,
    /// What sandboxes have booked that are being made, run, or are not frozen yet.
    pub booked: ByteSize,
    /// What frozen sandboxes use.
    pub idle_held: ByteSize,
    /// What frozen sandboxes book, and take when they run.
    pub idle_booked: ByteSize,
    /// Pre-warmed sandboxes, from the booking of their room until they end or become a function's.
    pub stems: usize,
    /// What these book.
    pub prewarmed: ByteSize,
    /// Invocations that run.
    pub running: usize,
    /// Invocations that wait for their turn to run, or for a sandbox.
    pub waiting: usize,
}
