//! The runs of schedules on this node.

use std::sync::Arc;

use nigh_invoke::schedule_runner::{Alone, LeadsNamespaces, ScheduleRunner, ScheduleRunnerParts};
use nigh_terms::NodeId;
use tokio_util::sync::CancellationToken;

use super::running::RunningNode;

/// The name of a node alone in its schedules' documents: it stays if the node is renamed, or restored elsewhere.
const ALONE: &str = "local";

impl RunningNode {
    /// What begins the runs of schedules until `until` is cancelled. In a cluster the dispatch owner of a namespace begins its
    /// runs.
    pub(super) fn schedule_runner(&self, until: CancellationToken) -> ScheduleRunner {
        let foundation = &self.parts.foundation;
        let leader = match &self.invocations.dispatcher {
            Some(dispatcher) => Arc::new(dispatcher.clone()) as Arc<dyn LeadsNamespaces>,
            None => Arc::new(Alone),
        };
        let node = match &foundation.cluster {
            Some(_) => foundation.membership.node().clone(),
            None => NodeId(ALONE.to_owned()),
        };
        let parts = ScheduleRunnerParts {
            functions: self.parts.functions.clone(),
            events: self.events.clone(),
            leader,
            clock: foundation.clock(),
            node,
            region: foundation.settings.region.clone(),
        };
        ScheduleRunner::new(parts, until)
    }
}
