//! Invocations in a cluster: controllers say where they run, nodes run them.
//!
//! One controller owns a namespace's dispatch at a time (`ownership`, pure; `owners`). It has the namespace's frontier: all
//! that its ended invocations and its writers outside have seen. The `Dispatcher` takes invocations at any process and
//! hands them to the owner; there they wait in one fair queue for a node that `schedule` finds by what nodes report
//! (`cluster_view`, pure), and are sent with the frontier's token. At a node the `RunDoor` takes them for exactly this life
//! of it, from nobody whose term is over (`terms`, pure), and keeps their answers for whoever asks again (`kept_runs`).
//! docs/design/dispatch.md.

mod books;
mod calls;
mod cluster_view;
mod dispatcher;
mod kept_runs;
mod owners;
mod ownership;
mod reporter;
mod run_door;
mod sending;
mod states;
mod terms;
mod wire;

pub use self::calls::DispatchCalls;
pub use self::dispatcher::{DispatchHomes, DispatchSettings, Dispatcher, DispatcherParts};
pub use self::owners::Owner;
pub use self::ownership::{OWNERS_TABLE, Ownership, OwnershipState, standing};
pub use self::reporter::report_all;
pub use self::run_door::{RunDoor, RunDoorParts};
pub use self::states::AnswerStates;
pub use self::wire::{AskedStates, FIRST_DISPATCH_METHOD, fuzz};
