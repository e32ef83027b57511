//! Invocations in a cluster: controllers choose nodes, nodes run invocations (docs/design/dispatch.md).
//!
//! At each time one controller owns a namespace's dispatch. It has the namespace's frontier: all that its ended invocations
//! and its writers outside have seen. The `Dispatcher` takes invocations at any process and hands them to the owner. There
//! they wait in one fair queue for a node, and are sent with the frontier's token. At the node, the `RunDoor` takes them for
//! exactly this incarnation, from no owner whose epoch is over, and keeps their answers for owners that ask again.

/// What may run next is made ready, and what it will read is prefetched.
mod ahead;
/// Answers the calls of dispatch.
mod calls;
/// What a controller keeps: owned namespaces, waiting invocations, its view of the nodes.
mod controller;
/// Takes invocations at any process.
mod dispatcher;
/// What the tasks of a dispatcher share.
mod dispatcher_state;
/// The way of one invocation: to its owner, or to nodes until one has run it.
mod dispatching;
/// The answers of runs, kept for who asks again.
mod kept_runs;
/// Finds, becomes and tells the owner of a namespace.
mod owners;
/// A node reports its free capacity and its cached copies to every controller.
mod reporter;
/// Takes the runs that controllers send to this node.
mod run_door;
/// Calls to nodes and to owners, until it is known what came of them.
mod sending;
/// What the leader of a namespace's executions asks of a dispatcher.
mod states;
/// The heads of calls and answers.
mod wire;

pub use self::calls::DispatchCalls;
pub use self::dispatcher::Dispatcher;
pub use self::dispatcher_state::{AnswerStates, DispatchHomes, DispatchSettings, DispatcherParts};
pub use self::owners::Owner;
pub use self::owners::ownership::{OWNERS_TABLE, Ownership, OwnershipState, standing};
pub use self::reporter::report_all;
pub use self::run_door::{RunDoor, RunDoorParts};
pub use self::wire::{AskedStates, FIRST_DISPATCH_METHOD, fuzz};
