//! Dispatch in a node of a cluster: the calls, the homes and the members that `nigh_dispatch` works with.
//!
//! Every process has a dispatcher: behind its doors it hands invocations to the owner of their namespace, and one with the
//! role `controller` may be that. One with the role `run` takes what owners send it, and reports.

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

/// Each invocation under way is a call under way: as many to one node as one may run.
const CONNECTIONS_MAX: usize = 1024;
/// Calls that wait for one of them.
const WAITING_MAX: usize = 16_384;

/// The homes, as the map and the memory of this node know them.
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
    /// Whether this node runs functions.
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

    /// What this node's doors, events and notifications invoke by: the owners of namespaces, of which this node may be one if
    /// it has the role `controller`. What clients outside write by `memory` is told to the owners from now on. To be called
    /// once, when the memory is open; what follows invocations is brought into memories by `prefetches_by`; `Dispatcher::leave` is to be called before `leave`, when the doors take nothing more.
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
        // A second time would change nothing.
        let _ = self.calls.dispatch.set(Arc::new(calls) as Arc<dyn Handler>);
        dispatcher
    }

    /// This node takes the invocations that owners send it, which `runner` runs, and reports to all controllers. For a node
    /// with the role `run`; to be called once.
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
