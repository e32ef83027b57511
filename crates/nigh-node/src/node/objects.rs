//! Opens the object memory, on the settings' store and journal, and the memory budget that it shares with sandboxes.

use std::sync::Arc;

use nigh_data::ObjectObserver;
use nigh_engine::Journal;
use nigh_invoke::invocation::phase_accountant::PhaseAccountant;
use nigh_invoke::node_memory::{CacheMemory, NodeMemory, NodeMemorySettings};
use nigh_objects::{MemoryLimits, ObjectMemory};
use nigh_schedule::memory::budget::BudgetLimits;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_sizing::object_sizes::ObjectSizes;
use nigh_stores::Store;
use nigh_terms::Clock;

use super::foundation::Foundation;
use super::memory_shares::MemoryShares;
use super::sandboxes::parser_user;
use super::{NodeError, levels};
use crate::cluster::memory::{MemberMemory, MemoryParts};
use crate::config::{Settings, Switch};
use crate::features;
use crate::status::Level;
use crate::writes;

/// The most data calls in one activation record; further ones are only counted.
const DATA_CALLS_MAX: usize = 1000;

pub(super) struct Objects {
    pub(super) memory: ObjectMemory,
    pub(super) journal: Arc<Journal>,
    pub(super) node_memory: NodeMemory,
    /// None if headers of objects are not read.
    pub(super) features: Option<FeatureRecorder>,
    pub(super) accountant: Arc<PhaseAccountant>,
}

impl Objects {
    /// Opens the object memory; in a cluster also its connections to other members.
    pub(super) async fn open(
        foundation: &Foundation,
        store: Arc<dyn Store>,
        sizes: &Arc<ObjectSizes>,
        levels: &mut Vec<Level>,
    ) -> Result<(Self, Option<MemberMemory>), NodeError> {
        let settings = &foundation.settings;
        let (features, level) =
            features::open(&settings.memory, foundation.own_registry(), parser_user(settings)).await?;
        levels.push(level);
        let (writes, journal, level) = writes::open(settings, foundation.registry(), foundation.epoch).await?;
        levels.push(level);
        let accountant = Arc::new(PhaseAccountant::new(DATA_CALLS_MAX));
        let mut observers =
            vec![Arc::clone(&accountant) as Arc<dyn ObjectObserver>, Arc::clone(sizes) as Arc<dyn ObjectObserver>];
        observers.extend(features.clone().map(|features| Arc::new(features) as Arc<dyn ObjectObserver>));
        let limits = MemoryLimits {
            cache: settings.cache.bytes,
            cached_object: settings.cache.object_max,
            object: settings.s3.object_max,
        };
        let (clock, paths) = (foundation.clock(), &foundation.paths);
        let (memory, member) = match &foundation.cluster {
            None => (ObjectMemory::open(store, writes, clock, observers, paths.spool(), limits).await?, None),
            Some(cluster) => {
                let parts = MemoryParts { store, writes, clock, observers, paths, limits };
                let member = MemberMemory::open(cluster, parts).await?;
                (member.memory.clone(), Some(member))
            }
        };
        memory.limit_uploads(settings.s3.uploads_bytes());
        let node_memory = node_memory(settings, &memory, foundation.clock())
            .map_err(NodeError::io("starting the threads of the node's memory"))?;
        levels.push(levels::memory(settings, &node_memory));
        Ok((Self { memory, journal, node_memory, features, accountant }, member))
    }
}

/// The memory budget of sandboxes and the cache; off if `memory.grants` is off.
fn node_memory(settings: &Settings, cache: &ObjectMemory, clock: Arc<dyn Clock>) -> std::io::Result<NodeMemory> {
    let memory = &settings.memory;
    if memory.grants == Switch::Off {
        return Ok(NodeMemory::off());
    }
    let slack = MemoryShares::of(settings).slack;
    let limits = BudgetLimits { bookable: settings.functions.memory, cache_own: settings.cache.bytes, slack };
    let shared = NodeMemorySettings { limits, park: memory.park == Switch::On, idle: memory.idle };
    NodeMemory::open(shared, Arc::new(cache.clone()) as Arc<dyn CacheMemory>, clock)
}
