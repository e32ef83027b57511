//! Storms: whole clusters in virtual time, under many faults at once, decided by one seed.
//!
//! The machines are the production types: home, node cache, gate and frontier of the protocol; of what stands behind
//! them the order of appends, what waits for the store and when it is pushed, and the pages of listings. Network,
//! ledger, store, clocks and the engine's view of who lives are modelled by their contracts. An observer who sees no
//! machine judges the history. docs/design/coherence.md, "Storms".

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

/// What those who drive the machines owe them beyond one process, and can be seen to be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// What a home has found in the store counts if its epoch stands after that.
    LookStands,
    /// Who asks the home whatever copy there is, is answered if the home's epoch stands after the question.
    CheckedAnswerStands,
    /// A push begins when the home's epoch stands.
    PushStands,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LookStands, Self::CheckedAnswerStands, Self::PushStands];
}

/// What is left out, to be missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftOut {
    /// Nothing.
    #[default]
    Nothing,
    /// A rule of the machines.
    Rule(Rule),
    /// A duty of those who drive them.
    Duty(Duty),
}

impl LeftOut {
    fn leaves_out(self, duty: Duty) -> bool {
        self == Self::Duty(duty)
    }
}

/// How a storm ended.
#[derive(Clone, Debug, PartialEq)]
pub struct StormEnd {
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// How often each fault struck.
    pub strikes: Strikes,
    /// Reads, writes, listings and invocations that came to their end.
    pub operations: u64,
    /// Events of any kind.
    pub events: u64,
    /// How long it was in its own time.
    pub virtual_seconds: f64,
    /// Of all events: equal seeds have equal ones.
    pub trace_hash: u64,
    /// Every event, if that was asked for.
    pub trace: Vec<String>,
}

/// Plays the storm of `seed`.
#[must_use]
pub fn storm(seed: u64, left_out: LeftOut) -> StormEnd {
    Storm::new(Plan::of(seed), left_out, false).play()
}

/// As [`storm`], with every event told.
#[must_use]
pub fn traced(seed: u64, left_out: LeftOut) -> StormEnd {
    Storm::new(Plan::of(seed), left_out, true).play()
}
