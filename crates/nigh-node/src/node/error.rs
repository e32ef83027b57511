//! Why a node cannot start.

use std::net::SocketAddr;

use nigh_data::ObjectError;
use nigh_engine::{JournalError, RegistryError, StateError};
use nigh_functions::function_store::FunctionStoreError;
use nigh_invoke::event_invoker::EventError;
use nigh_openwhisk::entity_store::EntityStoreError;
use nigh_rpc::certificates::CertificateError;
use nigh_sandbox::sandbox::SandboxError;
use nigh_workflow::executions::ExecutionError;
use nigh_workflow::machine_store::MachineError;
use thiserror::Error;

use crate::cluster::ClusterStartError;
use crate::llc::LlcError;
use crate::outside_door::SecretFileError;
use crate::state_folder::StateFolderError;
use crate::store::StoreOpenError;
use crate::telemetry::TelemetryError;

/// Why a node cannot start.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum NodeError {
    #[error(transparent)]
    StateFolder(#[from] StateFolderError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Objects(#[from] ObjectError),
    #[error(transparent)]
    Functions(#[from] FunctionStoreError),
    #[error(transparent)]
    OpenWhisk(#[from] EntityStoreError),
    #[error(transparent)]
    Events(#[from] EventError),
    #[error(transparent)]
    Machines(#[from] MachineError),
    #[error(transparent)]
    Executions(#[from] ExecutionError),
    #[error(transparent)]
    Llc(#[from] LlcError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error("the doors' certificate: {0}")]
    DoorCertificates(#[from] CertificateError),
    #[error(transparent)]
    Cluster(#[from] Box<ClusterStartError>),
    #[error(
        "this process may open {limit} files, and a node needs {least}: run `ulimit -n 65536` first, or set LimitNOFILE=65536 \
         in its systemd unit"
    )]
    FewFiles { limit: u64, least: u64 },
    #[error("{setting} {address}: {source}; set another with --{flag}, port 0 takes a free one")]
    Bind { setting: &'static str, flag: &'static str, address: SocketAddr, source: std::io::Error },
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
}

impl NodeError {
    /// Wraps the system's reason for the failure of a step of the start.
    pub(super) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
