//! The tasks of a running node: its doors, and the work beside the requests.

use std::sync::{Arc, Weak};

use nigh_dispatch::AnswerStates;
use nigh_lambda::LambdaDoor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::NodeError;
use super::listeners::Listeners;
use super::running::{RunningNode, end_with_membership};
use super::workflows::lead_executions;
use crate::admin::{self, TcpDoor};
use crate::background;
use crate::cluster::members::MemberSource;
use crate::cluster::memory::{MemberMemory, MemoryDoor, MemoryHost};
use crate::outside_door::OutsideDoor;
use crate::tenancy;

/// The parts that the tasks need when they start.
pub(super) struct Tasks {
    pub(super) listeners: Listeners,
    pub(super) lambda: Arc<LambdaDoor>,
    pub(super) outside: OutsideDoor,
    pub(super) member: Option<MemberMemory>,
}

impl Tasks {
    /// Opens the doors, which close when `doors` is cancelled; the other tasks work until `running` stops. Whoever
    /// reads `endpoints.json` finds the doors to objects and functions open.
    pub(super) async fn start(
        self,
        running: &Arc<RunningNode>,
        doors: &CancellationToken,
    ) -> Result<TaskTracker, NodeError> {
        let tasks = TaskTracker::new();
        let Self { listeners, lambda, outside, member } = self;
        let parts = &running.parts;
        tasks.spawn(parts.s3.clone().serve_tcp(listeners.s3, doors.clone()));
        tasks.spawn(parts.s3.clone().serve_unix(listeners.s3_unix, doors.clone()));
        if let (Some(fast_path), Some(listener)) = (parts.fast_path.clone(), listeners.fast) {
            let until = doors.clone();
            tasks.spawn(async move {
                if let Err(error) = fast_path.serve(listener, None, until).await {
                    tracing::warn!(%error, "the fast path is not served; clients use HTTP");
                }
            });
        }
        // Readers of the store need this door's answers until the last push.
        if let Some(listener) = listeners.outside {
            tasks.spawn(Arc::new(outside).serve(listener, running.stop.clone()));
        }
        running.work_beside_requests(&tasks, doors);
        if let Some((cluster, member)) = parts.foundation.cluster.as_ref().zip(member) {
            let (present, over, until) = (cluster.present(), running.is_expelled.clone(), running.stop.clone());
            tasks.spawn(member.follow(present, over, until));
            cluster.serve_records(parts.activations.clone());
            let (follower, over) = (cluster.operations_follower(), running.asked_to_stop.clone());
            tasks.spawn(follower.run(over, running.stop.clone()));
            cluster.serve_members(Arc::downgrade(running) as Weak<dyn MemberSource>);
            let memory = &parts.objects.memory;
            let door = Arc::new(MemoryDoor(memory.clone()));
            cluster.serve(Arc::new(MemoryHost(memory.clone())), Some(door)).await?;
            tasks.spawn(end_with_membership(Arc::clone(running)));
        }
        if let (Some(dispatcher), Some(owned)) = (&running.invocations.dispatcher, &running.workflows.owned) {
            dispatcher.answer_states_by(&(Arc::clone(&lambda) as Arc<dyn AnswerStates>));
            tasks.spawn(lead_executions(owned.clone()));
        }
        tasks.spawn(lambda.serve(listeners.lambda, doors.clone()));
        tasks.spawn(running.schedule_runner(doors.clone()).run());
        running.endpoints.write(&parts.foundation.paths)?;
        tasks.spawn(admin::serve(Arc::clone(running), listeners.admin));
        let door =
            TcpDoor { listener: listeners.admin_tcp, connections_max: parts.foundation.files.lambda_connections };
        tasks.spawn(admin::serve_tcp(Arc::clone(running), door));
        tasks.close();
        Ok(tasks)
    }
}

impl RunningNode {
    fn work_beside_requests(&self, tasks: &TaskTracker, doors: &CancellationToken) {
        let (llc, memory) = (&self.parts.llc, &self.parts.objects.memory);
        if let Some(features) = &self.parts.objects.features {
            tasks.spawn(features.clone().run(memory.clone(), self.stop.clone()));
        }
        // Pushes continue while running invocations finish.
        tasks.spawn(memory.clone().persist(self.stop.clone()));
        let (keys, registry) = (self.parts.foundation.keys.clone(), self.parts.foundation.registry());
        tasks.spawn(tenancy::write_key_uses(keys.clone(), registry, self.stop.clone()));
        tasks.spawn(tenancy::count_stored_bytes(keys.clone(), memory.clone(), self.stop.clone()));
        if let Some(cluster) = &self.parts.foundation.cluster {
            tasks.spawn(tenancy::share_requests(keys, cluster.present(), self.stop.clone()));
        }
        let applications = self.invocations.applications.clone();
        tasks.spawn(applications.keep(self.parts.foundation.registry(), self.stop.clone()));
        tasks.spawn(background::upkeep(self.telemetry.clone(), doors.clone()));
        tasks.spawn(background::follow_load(Arc::clone(llc), Arc::clone(&self.profiling), doors.clone()));
        tasks.spawn(background::fit_classes(Arc::clone(llc), doors.clone()));
        let clock = Arc::clone(&self.parts.foundation.clock);
        tasks.spawn(background::sample_cache_use(Arc::clone(llc), clock, doors.clone()));
    }
}
