//! What Nigh's pool did before it had a queue for each function: whoever waits gets the room of whoever is idle, at once.
//!
//! An idle sandbox of the function if there is one, the one used last; else a new one in free room; else a new one once
//! those idle longest have ended; else the invocation waits. For a warm sandbox anyone may go first, for room nobody passes
//! one who came before. As many sandboxes start at once as find room.

use super::on_demand::{Line, LongestIdle, OnDemandPool};
use super::policy::{IdleTakes, Policy};
use super::workload::NodeFunction;

pub(super) fn at_once(functions: &[NodeFunction], idle_takes: IdleTakes) -> Box<dyn Policy + '_> {
    Box::new(OnDemandPool::new(functions, idle_takes, Line::WarmPasses, LongestIdle))
}
