//! The fabric between compute servers and a memory server: how long workflows of functions take on it, by protocol.
//!
//! A discrete-event model of Apta's study (DSN 2023, section IV): servers with one link each to a memory server,
//! objects that are read whole and written whole, and what each [`System`] does about copies. [`simulate`] runs one
//! [`Workflow`]; [`workflows`] has the paper's six. Time is in whole picoseconds, so that equal runs are equal to the
//! last digit.
//!
//! Processors are not modelled: computing times are given. Mechanisms in the paper (outstanding lines, logging before
//! writing) are modelled, and the paper's percentages are compared (docs/design/fabric.md).

mod engine;
mod hardware;
mod home;
mod jitter;
mod outcome;
mod picos;
mod protocol;
mod scenarios;
mod system;
mod transfer;
mod workflow;
mod workflows;

pub use engine::simulate;
pub use hardware::{Hardware, Link};
pub use jitter::{Jitter, JitteredPart};
pub use outcome::{BlockedFunction, FunctionTimes, Outcome, Traffic};
pub use picos::Picos;
pub use scenarios::{gets_at_once, one_get, one_put, two_puts};
pub use system::{Granularity, System};
pub use workflow::{Failure, Function, Object, ObjectId, Run, Server, Step, Workflow};
pub use workflows::{IMAGE_MODEL_BYTES, workflows};
