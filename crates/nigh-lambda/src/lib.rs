//! The Lambda door: the part of the Lambda REST API that deploys and invokes functions.
//!
//! `route` says which operation a request is, `sigv4` whether it is signed, `validation` whether it may be,
//! `operations` does it, `server` is the HTTP around. A request acts for the namespace of the key that signed it.
//! A sandbox's key may invoke functions of its namespace while it runs an invocation, and do nothing else here.
//! The Step Functions API is served here, too (`states`).
//! There are no versions, aliases or images: they answer an error that says so.

pub mod cloud_event;
mod code_objects;
mod concurrency;
mod error;
mod events;
pub mod http_passage;
mod layers;
mod operations;
mod route;
mod server;
mod shape;
pub mod sigv4;
mod states;
mod urls;
mod validation;

use std::sync::Arc;

use nigh_engine::AccessKeys;
use nigh_functions::function_network::NetworkPermission;
use nigh_functions::function_store::FunctionStore;
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_http::mounted_api::MountedApi;
use nigh_http::request_body::BodyRoom;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_terms::Clock;
use nigh_workflow::executions::Executions;
use nigh_workflow::machine_store::MachineStore;
use nigh_workflow::owned::OwnedExecutions;

pub use code_objects::{CodeObjects, Pieces};
pub use error::LambdaError;
pub use route::Operation;
pub use states::StatesOperation;

/// What a door says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LambdaDoorSettings {
    /// The region in ARNs. Requests may be signed for any.
    pub region: String,
    /// How many invocations can run at once, for `GetAccountSettings`.
    pub concurrency: usize,
    /// Which functions may have a way out to the network.
    pub network: NetworkPermission,
}

/// What a door stands on.
pub struct LambdaDoorParts {
    /// The functions.
    pub functions: FunctionStore,
    /// What runs them.
    pub invoke: Arc<dyn Invoke>,
    /// What runs them later.
    pub events: EventInvoker,
    /// State machines.
    pub machines: MachineStore,
    /// What runs them, and leads their executions; in a cluster those alone that are not kept.
    pub executions: Executions,
    /// Where the kept ones of a cluster are led; none on one machine.
    pub owned: Option<OwnedExecutions>,
    /// Who may ask.
    pub keys: AccessKeys,
    /// Where archives may lie.
    pub objects: Arc<dyn CodeObjects>,
    /// The runtimes of this node.
    pub catalog: RuntimeCatalog,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Another API on the same listener: OpenWhisk's.
    pub mounted: Option<Arc<dyn MountedApi>>,
}

/// The Lambda door.
pub struct LambdaDoor {
    parts: LambdaDoorParts,
    settings: LambdaDoorSettings,
    bodies: BodyRoom,
}

impl LambdaDoor {
    /// A door that nobody can enter until `serve`.
    #[must_use]
    pub fn new(parts: LambdaDoorParts, settings: LambdaDoorSettings) -> Self {
        Self { parts, settings, bodies: BodyRoom::default() }
    }
}
