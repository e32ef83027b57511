//! Storms: whole clusters in virtual time, under many faults at once. One seed determines everything.
//!
//! The machines are the production types: home, node cache, gate and frontier of the protocol, and the production code
//! for the order of appends, the queue of pushes and the pages of listings. Network, ledger, store, clocks and
//! membership are models of their contracts. An observer that sees no machine judges the history.
//! docs/design/coherence.md, "Storms".

mod clock;
mod dice;
mod fault;
mod healing;
mod ledger;
mod listing;
mod network;
mod node;
mod observer;
mod packet;
mod plan;
mod scheduler;
mod seat;
mod seat_tickets;
mod services;
mod shrink;
mod store;
mod strikes;
mod work;
mod world;

use nigh_protocol::Rule;

pub use self::fault::{Fault, FaultKind, Strikes};
pub use self::observer::{Breach, Violation};
use self::plan::Plan;
pub use self::shrink::{ShrunkStorm, shrink};
use self::world::Storm;

/// Rules of the shell around the machines in a cluster. A test leaves each out, and must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// A result from the store counts only if the home's epoch is still valid afterwards.
    LookStands,
    /// A fetch that asks the home even if there is a copy is answered only if the home's epoch is still valid after the
    /// fetch.
    CheckedAnswerStands,
    /// A push starts only after the home's epoch is confirmed.
    PushStands,
}

impl Duty {
    /// Every duty.
    pub const ALL: [Self; 3] = [Self::LookStands, Self::CheckedAnswerStands, Self::PushStands];
}

/// The duty or rule that is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftOut {
    /// No duty or rule is left out.
    #[default]
    Nothing,
    /// A rule of the machines.
    Rule(Rule),
    /// A duty of the shell.
    Duty(Duty),
}

impl LeftOut {
    fn leaves_out(self, duty: Duty) -> bool {
        self == Self::Duty(duty)
    }
}

/// The result of a storm.
#[derive(Clone, Debug, PartialEq)]
pub struct StormEnd {
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// The count of each kind of fault.
    pub strikes: Strikes,
    /// Number of reads, writes, listings and invocations that ended.
    pub operations: u64,
    /// Number of events of any kind.
    pub events: u64,
    /// The duration in virtual seconds.
    pub virtual_seconds: f64,
    /// The digest of all events; the same for the same seed.
    pub trace_hash: u64,
    /// All events, if requested.
    pub trace: Vec<String>,
}

/// Runs the storm of `seed`.
#[must_use]
pub fn storm(seed: u64, left_out: LeftOut) -> StormEnd {
    Storm::new(Plan::of(seed), left_out, false).play()
}

/// Runs the storm of `seed` and returns all of its events too.
#[must_use]
pub fn traced(seed: u64, left_out: LeftOut) -> StormEnd {
    Storm::new(Plan::of(seed), left_out, true).play()
}
