//! Workflows: state machines in the Amazon States Language whose tasks are functions (docs/howto/workflows.md).
//!
//! The pure part decides: `read` makes a `Definition` from a text, and `run` is an execution that takes `Event`s and
//! returns `Command`s. It has no clock, no randomness and no I/O of its own: the same events give the same commands, so
//! storing its events stores an execution.

/// Names and ARNs of state machines and executions.
pub mod arn;
/// The events of an execution, and the commands that follow.
pub mod event;
/// Runs executions: the shell around `run`.
pub mod executions;
/// The events of an execution as `GetExecutionHistory` shows them.
pub mod history;
/// The Amazon States Language: definitions, paths, templates, rules.
mod language;
/// Stores the definitions of state machines.
pub mod machine_store;
/// In a cluster: which process runs a namespace's executions.
pub mod owned;
/// An execution as a pure state machine.
pub mod run;
/// Folders of objects that exist as long as their execution.
pub mod scratch;

pub use self::language::definition::Definition;
pub use self::language::problems::Problem;
pub use self::language::read::read;
