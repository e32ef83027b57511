//! Runs invocations on a node.
//!
//! An invocation's way: `invoker` finds the function, `sandboxes` gives the invocation a sandbox (decided by
//! `nigh_schedule::sandbox_pool`; `maker` starts one if needed), `execution` passes the gate, runs the handler between the
//! `hooks` and concludes with the record, which the `activation_log` keeps.

/// The records of ended invocations.
pub mod activation_log;
/// What is learned of applications: the objects that their invocations read.
pub mod applications;
/// An invocation on its way.
mod call;
/// Accepts, runs and retries asynchronous invocations.
pub mod event_invoker;
/// One invocation in its sandbox, from the input to the record.
mod execution;
/// Code before and after each run.
pub mod hooks;
/// An invocation as the doors ask for it, the gate before it, and its verdict.
pub mod invocation;
/// An invocation's span.
mod invocation_trace;
/// Admits invocations, runs them to their end, and keeps their sandboxes.
pub mod invoker;
/// Limits and times.
pub mod invoker_settings;
/// The node's memory at work: limits of sandboxes, and the cache that shrinks.
pub mod node_memory;
/// The sandboxes of a node: who gets one, how one is made, kept warm and ended.
mod sandboxes;
/// Begins the runs of schedules.
pub mod schedule_runner;
