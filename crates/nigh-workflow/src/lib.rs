//! Workflows: state machines in the Amazon States Language whose tasks are functions.
//!
//! The pure part decides all: `read` makes a `Definition` of a text or says what is wrong with it and where, `run` is an
//! execution, a state machine that takes `Event`s and gives `Command`s. It has no clock, no chance and no I/O of its own:
//! the same events give the same commands, so that an execution is kept by keeping its events (docs/workflows.md).
//! `machine_store` keeps definitions, `execution_row` is how an execution is kept, `executions` runs them; in a cluster `owned`
//! says where.

pub mod arn;
mod chance;
mod choice;
mod choice_reader;
pub mod context;
pub mod definition;
mod duty;
pub mod error_names;
pub mod event;
mod execution_row;
pub mod executions;
pub mod history;
mod intrinsic;
pub mod machine_store;
pub mod owned;
mod path;
mod path_filter;
mod read;
mod reader;
mod retry;
pub mod run;
pub mod scratch;
mod scratch_objects;
mod state_fields;
mod template;
mod timestamp;

pub use self::definition::Definition;
pub use self::read::{Problem, read};
