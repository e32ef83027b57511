//! The parts of a node that open before anything runs, and the logs of invocations.

use std::sync::Arc;

use nigh_engine::{LocalHistories, Outbox, RecordLog, Retention};
use nigh_functions::function_store::{FunctionLimits, FunctionStore};
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_invoke::activation_log::ActivationLog;
use nigh_openwhisk::entity_store::EntityStore;
use nigh_s3::{FastPath, S3Door};

use super::NodeError;
use super::foundation::Foundation;
use super::objects::Objects;
use super::sandboxes::Sandboxes;
use crate::learning::MemoryModels;
use crate::llc::Llc;
use crate::recent_invocations::RecentInvocations;

/// The table of OpenWhisk's activations in the state file.
const OPENWHISK_RECORDS: &str = "openwhisk-records";

pub(super) struct NodeParts {
    pub(super) foundation: Foundation,
    pub(super) sandboxes: Sandboxes,
    pub(super) llc: Arc<Llc>,
    pub(super) objects: Objects,
    pub(super) functions: FunctionStore,
    pub(super) catalog: RuntimeCatalog,
    pub(super) learning: MemoryModels,
    pub(super) activations: ActivationLog,
    pub(super) recent: RecentInvocations,
    pub(super) s3: S3Door,
    /// None if it is off.
    pub(super) fast_path: Option<FastPath>,
}

/// Opens the descriptions of functions, and those of OpenWhisk's packages, triggers and rules.
pub(super) async fn open_functions(foundation: &Foundation) -> Result<(FunctionStore, EntityStore), NodeError> {
    // In a cluster another node may have more memory for a function.
    let memory = foundation.cluster.is_none().then_some(foundation.settings.functions.memory);
    let limits = FunctionLimits { memory, ..FunctionLimits::default() };
    let folder = foundation.paths.functions();
    let functions = FunctionStore::open(foundation.registry(), &folder, foundation.clock(), limits).await?;
    let entities = EntityStore::open(foundation.registry()).await?;
    if foundation.cluster.is_some() {
        functions.follow().await?;
        entities.follow().await?;
    } else {
        functions.sweep_schedules().await?;
    }
    Ok((functions, entities))
}

/// The logs of the state file.
pub(super) struct Logs {
    /// The events that are accepted and not done.
    pub(super) outbox: Outbox,
    pub(super) whisk_records: RecordLog,
    pub(super) histories: LocalHistories,
    pub(super) records: RecordLog,
}

impl Logs {
    pub(super) fn open(foundation: &Foundation) -> Result<Self, NodeError> {
        let database = || foundation.database.clone();
        let activations = &foundation.settings.activations;
        let retention = Retention {
            records_max: activations.records_max,
            bytes_max: activations.bytes_max,
            namespace_bytes_max: activations.namespace_bytes,
        };
        Ok(Self {
            outbox: Outbox::open(database()).map_err(NodeError::io("starting the writer of events"))?,
            whisk_records: RecordLog::open_named(database(), OPENWHISK_RECORDS, retention)
                .map_err(NodeError::io("starting the writer of OpenWhisk's records"))?,
            histories: LocalHistories::open(database()).map_err(NodeError::io("starting the writer of executions"))?,
            records: RecordLog::open(database(), retention).map_err(NodeError::io("starting the writer of records"))?,
        })
    }
}
