//! Storms: whole clusters in virtual time, under many faults at once, all determined by one seed.
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

/// Duties of the shell around the machines in a cluster; leaving one out is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// A result from the store counts only if the home's epoch is still valid afterwards.
    LookStands,
    /// A request for any copy is answered only if the home's epoch is still valid after the request.
    CheckedAnswerStands,
    /// A push starts only after the home's epoch is confirmed.
    PushStands,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LookStands, Self::CheckedAnswerStands, Self::PushStands];
}

/// The duty or rule that is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftOut {
    /// Nothing.
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
    /// The count of each fault.
    pub strikes: Strikes,
    /// Reads, writes, listings and invocations that came to their end.
    pub operations: u64,
    /// Events of any kind.
    pub events: u64,
    /// Its duration in virtual time.
    pub virtual_seconds: f64,
    /// The digest of all events; the same for the same seed.
    pub trace_hash: u64,
    /// All events, if requested.
    pub trace: Vec<String>,
}

/// Plays the storm of `seed`.
#[must_use]
pub fn storm(seed: u64, left_out: LeftOut) -> StormEnd {
    Storm::new(Plan::of(seed), left_out, false).play()
}

/// The same as [`storm`], with all events in the result.
#[must_use]
pub fn traced(seed: u64, left_out: LeftOut) -> StormEnd {
    Storm::new(Plan::of(seed), left_out, true).play()
}
