//! Apache OpenWhisk's `ContainerPool` (`core/invoker/.../containerpool/ContainerPool.scala`).
//!
//! A free container of the action that is warm; else a new one, if what all containers book leaves room for it; else a new
//! one in place of those free longest. Who finds no room goes to the run buffer, a line that its head holds up: while it is
//! not empty, everyone joins it behind.

use super::on_demand::{Line, LongestIdle, OnDemandPool};
use super::policy::{IdleTakes, Policy};
use super::workload::NodeFunction;

pub(super) fn openwhisk(functions: &[NodeFunction], idle_takes: IdleTakes) -> Box<dyn Policy + '_> {
    Box::new(OnDemandPool::new(functions, idle_takes, Line::HeadBlocks, LongestIdle))
}
