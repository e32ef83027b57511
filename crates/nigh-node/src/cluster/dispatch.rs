//! Dispatch in a node of a cluster: connects the calls, the homes and the members with `nigh_dispatch`.
//!
//! Every process has a dispatcher, which sends invocations to the dispatch owner of their namespace. A process with the
//! role `controller` may be a dispatch owner. A process with the role `run` runs what owners send it, and reports to them.

use std::sync::Arc;

use async_trait::async_trait;
use nigh_data::ObjectError;
use nigh_dispatch::{
    DispatchCalls, DispatchHomes, DispatchSettings, Dispatcher, DispatcherParts, RunDoor, RunDoorParts, report_all,
};
use nigh_engine::NodeRole;
use nigh_engine::nats::NatsHomes;
use nigh_functions::function::FunctionSource;
use nigh_invoke::applications::Applications;
use nigh_invoke::invocation::gate::InvocationGate;
use nigh_invoke::invocation::run_dispatched::RunDispatched;
use nigh_objects::ObjectMemory;
use nigh_objects::cluster::Frontiers;
use nigh_protocol::Member;
use nigh_rpc::{ClientSettings, Handler, Peers};
use nigh_terms::{Epoch, ShardId, Token};

use super::ClusterEngine;

/// The most connections to one node. Each running invocation is a running call.
const CONNECTIONS_MAX: usize = 1024;
/// The most calls that wait for a connection.
const WAITING_MAX: usize = 16_384;

/// The homes, from this node's map and memory.
struct Homes {
    map: NatsHomes,
    memory: ObjectMemory,
    shards: u16,
}

#[async_trait]
impl DispatchHomes for Homes {
    async fn newest_of_all(&self) -> Result<Token, ObjectError> {
        let unread = |error| ObjectError::Busy(format!("the map of homes cannot be read: {error}"));
        let entries = self.map.list().await.map_err(unread)?;
        let epoch = |shard| {
            let entry = entries.iter().find(|entry| entry.shard == shard);
            entry.and_then(|entry| entry.home.highest()).unwrap_or(Epoch(0))
        };
        let at_least: Vec<(ShardId, Epoch)> =
            (0..self.shards).map(ShardId).map(|shard| (shard, epoch(shard))).collect();
        self.memory.newest_of_all(&at_least).await
    }

    async fn fence(&self, member: Member) -> Result<Token, ObjectError> {
        self.memory.fence(member).await
    }
}

impl ClusterEngine {
    /// True if this node runs functions.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.presence.roles.contains(&NodeRole::Run)
    }

    fn member(&self) -> Member {
        Member { node: self.claimant.number, incarnation: self.claimant.incarnation }
    }

    fn dispatch_peers(&self) -> Peers {
        let settings =
            ClientSettings { connections_max: CONNECTIONS_MAX, waiting_max: WAITING_MAX, ..ClientSettings::default() };
        Peers::new(self.own.clone(), self.security.clone(), settings)
    }

    /// Starts the dispatcher, by which this node's doors, events and notifications invoke functions. From now on
    /// dispatch owners learn of writes by clients outside; `prefetches_by` prefetches. Call this once, when the memory
    /// is open, and call `Dispatcher::leave` after the doors have closed and before `leave`.
    #[must_use]
    pub fn start_dispatch(
        &self,
        functions: Arc<dyn FunctionSource>,
        memory: &ObjectMemory,
        (applications, prefetches_by): (Applications, Option<ObjectMemory>),
        settings: DispatchSettings,
    ) -> Dispatcher {
        let homes = Homes { map: self.homes.clone(), memory: memory.clone(), shards: self.settings.shards };
        let dispatcher = Dispatcher::new(
            DispatcherParts {
                node: self.claimant.node.clone(),
                me: self.member(),
                owns: self.presence.roles.contains(&NodeRole::Controller),
                functions,
                gate: Some(Arc::new(memory.clone()) as Arc<dyn InvocationGate>),
                homes: Arc::new(homes),
                registry: self.registry(),
                applications,
                memory: prefetches_by,
                peers: self.dispatch_peers(),
                present: self.present(),
                clock: Arc::clone(&self.clock),
            },
            settings,
        );
        memory.set_frontiers(Arc::new(dispatcher.clone()) as Arc<dyn Frontiers>);
        let calls = DispatchCalls { door: None, dispatcher: Some(dispatcher.clone()) };
        // A second call changes nothing.
        let _ = self.calls.dispatch.set(Arc::new(calls) as Arc<dyn Handler>);
        dispatcher
    }

    /// From now on this node runs the invocations that dispatch owners send it, by `runner`, and reports to all
    /// controllers. For a node with the role `run`. Call this once.
    pub fn start_running(
        &self,
        runner: Arc<dyn RunDispatched>,
        functions: Arc<dyn FunctionSource>,
        memory: &ObjectMemory,
    ) {
        let door = RunDoor::new(RunDoorParts {
            node: self.claimant.node.clone(),
            me: self.member(),
            runner,
            functions,
            registry: self.registry(),
            present: self.present(),
            clock: Arc::clone(&self.clock),
        });
        let calls = DispatchCalls { door: Some(Arc::clone(&door)), dispatcher: None };
        let _ = self.calls.running.set(Arc::new(calls) as Arc<dyn Handler>);
        let (peers, memory) = (self.dispatch_peers(), memory.clone());
        let reports = report_all(door, memory, peers, self.present(), self.ending.clone());
        self.tasks.spawn(reports);
    }
}
