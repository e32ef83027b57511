//! The Lambda door: the part of the Lambda REST API that deploys and invokes functions.
//!
//! `route` finds the operation of a request, `nigh_http::sigv4` checks its signature, `validation` its content; `operations`
//! performs it, `server` has the HTTP. A request acts for the namespace of the key that signed it. A sandbox's key may
//! invoke functions of its namespace while the sandbox runs an invocation, and do nothing else here. The door also serves
//! the Step Functions API (`states`) and EventBridge Scheduler's (`scheduler`). Requests for versions, aliases or images
//! get an error that says that there are none.

mod actions;
mod answered;
pub mod cloud_event;
mod code_objects;
mod concurrency;
mod error;
mod events;
pub mod http_passage;
mod layers;
mod operations;
mod response;
mod route;
mod scheduler;
mod server;
mod shape;
mod states;
mod stray;
mod urls;
mod validation;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nigh_engine::AccessKeys;
use nigh_functions::function_network::NetworkPermission;
use nigh_functions::function_store::FunctionStore;
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_http::audit::Audit;
use nigh_http::farewell::Farewell;
use nigh_http::mounted_api::MountedApi;
use nigh_http::request_body::BodyRoom;
use nigh_http::sigv4::SigningKeys;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_terms::Clock;
use nigh_workflow::executions::Executions;
use nigh_workflow::machine_store::MachineStore;
use nigh_workflow::owned::OwnedExecutions;

pub use code_objects::{CodeObjects, Pieces};
pub use error::LambdaError;
pub use route::Operation;
pub use scheduler::SchedulerOperation;
pub use states::StatesOperation;

/// The settings of a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LambdaDoorSettings {
    /// The region in ARNs. Requests may be signed for any region.
    pub region: String,
    /// The most concurrent invocations, for `GetAccountSettings`.
    pub concurrency: usize,
    /// Which functions may have an outbound network.
    pub network: NetworkPermission,
}

/// The parts that a door uses.
pub struct LambdaDoorParts {
    /// The functions.
    pub functions: FunctionStore,
    /// Runs functions.
    pub invoke: Arc<dyn Invoke>,
    /// Runs events.
    pub events: EventInvoker,
    /// State machines.
    pub machines: MachineStore,
    /// Runs state machines; in a cluster only the executions that are not stored.
    pub executions: Executions,
    /// Finds the owner of a cluster's stored executions; none on one machine.
    pub owned: Option<OwnedExecutions>,
    /// The access keys.
    pub keys: AccessKeys,
    /// Reads archives from objects.
    pub objects: Arc<dyn CodeObjects>,
    /// The runtimes of this node.
    pub catalog: RuntimeCatalog,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Another API on the same listener: OpenWhisk's.
    pub mounted: Option<Arc<dyn MountedApi>>,
}

/// The Lambda door.
pub struct LambdaDoor {
    parts: LambdaDoorParts,
    settings: LambdaDoorSettings,
    connections_max: usize,
    bodies: BodyRoom,
    audit: Audit,
    farewell: Farewell,
    /// Of those who sign requests.
    signing: SigningKeys,
    /// Whether clients reach it over TLS.
    has_tls: AtomicBool,
}

impl LambdaDoor {
    /// A door, which answers nothing before `serve`.
    #[must_use]
    pub fn new(parts: LambdaDoorParts, settings: LambdaDoorSettings) -> Self {
        let connections_max = server::CONNECTIONS_MAX;
        let bodies = BodyRoom::new(connections_max);
        let (farewell, signing, has_tls) = (Farewell::default(), SigningKeys::default(), AtomicBool::new(false));
        Self { parts, settings, connections_max, bodies, audit: Audit::off(), farewell, signing, has_tls }
    }

    /// The same, for so many connections at a time, and so requests under way.
    #[must_use]
    pub fn with_connections(self, connections_max: usize) -> Self {
        Self { connections_max, bodies: BodyRoom::new(connections_max), ..self }
    }

    /// The same, with its requests in this audit trail.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// The same; `farewell` asks its clients to leave before it closes.
    #[must_use]
    pub fn with_farewell(self, farewell: Farewell) -> Self {
        Self { farewell, ..self }
    }
}
