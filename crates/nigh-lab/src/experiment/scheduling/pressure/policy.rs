//! What decides on a node: which invocation runs in which sandbox, which sandboxes start and which end.
//!
//! The node tells a policy what has happened and then asks it for actions; a policy keeps books of its own. A pool that
//! gives out commands after `serve(now)` fits behind this trait: the calls that tell become its calls, `decide` becomes
//! `serve`. Sandboxes are numbered by the policy. A sandbox that has started is idle, and belongs to no invocation.

use nigh_terms::{ByteSize, Monotonic};

use crate::experiment::scheduling::processors::Processors;

/// Names a sandbox; no number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SandboxNo(pub(super) u32);

/// What an idle sandbox takes of the node's memory. One that starts or runs takes what its function books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleTakes {
    /// What its function books.
    Booked,
    /// What it uses.
    Held,
}

/// What a policy has decided. What it names in `after` ends at once, and the rest is done when that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A waiting invocation runs in an idle sandbox of its function.
    Run {
        invocation: usize,
        sandbox: SandboxNo,
        after: Vec<SandboxNo>,
    },
    Start {
        function: usize,
        sandbox: SandboxNo,
        after: Vec<SandboxNo>,
    },
    End(SandboxNo),
    /// A waiting invocation is refused.
    Refuse(usize),
}

#[derive(Debug)]
pub(super) struct NodeState<'a> {
    /// What all sandboxes may take.
    pub(super) memory: ByteSize,
    /// What is promised to none: what a sandbox that ends takes is free already, what one that waits for its memory will
    /// take is not.
    pub(super) memory_free: ByteSize,
    pub(super) processors: u16,
    pub(super) now_us: u64,
    pub(super) work: &'a Processors,
}

impl NodeState<'_> {
    pub(super) fn idle_processors(&self) -> f64 {
        let work = self.work.left(self.now_us).count();
        usize::from(self.processors).saturating_sub(work) as f64
    }

    /// Microseconds of work that each starting and running sandbox has before it. Only who knows the future may ask.
    pub(super) fn work_left(&self) -> impl Iterator<Item = (SandboxNo, f64)> {
        self.work.left(self.now_us).map(|(job, left_us)| (SandboxNo(job as u32), left_us))
    }
}

pub(super) trait Policy {
    fn idle_takes(&self) -> IdleTakes;

    fn arrived(&mut self, now: Monotonic, invocation: usize, function: usize);

    /// A waiting invocation has been refused by the node, because it has waited too long.
    fn overdue(&mut self, now: Monotonic, invocation: usize);

    fn started(&mut self, now: Monotonic, sandbox: SandboxNo);

    fn ended(&mut self, now: Monotonic, sandbox: SandboxNo);

    fn gone(&mut self, _now: Monotonic, _sandbox: SandboxNo) {}

    /// What to do now. Asked after every event, and every 20 ms while an invocation waits.
    fn decide(&mut self, now: Monotonic, node: &NodeState<'_>) -> Vec<Action>;

    /// When it wants to be asked even if nothing happens.
    fn wakes_at(&self) -> Option<Monotonic> {
        None
    }
}
