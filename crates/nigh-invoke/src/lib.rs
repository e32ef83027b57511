//! Runs invocations on a node.
//!
//! An invocation's way: `invoker` finds the function, `admission` gets it a sandbox (decided by
//! `nigh_schedule::sandbox_pool`), `making` starts one if needed, `gate` waits until the node covers what the caller has
//! seen, `execution` runs the handler between the `hooks`, and the `activation_log` keeps the record.

pub mod activation_log;
pub mod admission;
pub mod applications;
pub mod cold_start;
pub mod event_invoker;
pub mod event_row;
pub mod execution;
pub mod gate;
pub mod hooks;
pub mod idle_processors;
pub mod invocation;
pub mod invocation_meter;
pub mod invocation_record;
pub mod invoker;
pub mod invoker_settings;
pub mod live_sandbox;
pub mod making;
pub mod memory_threads;
pub mod node_memory;
pub mod phase_accountant;
pub mod prefetch_station;
pub mod prewarmer;
pub mod run_dispatched;
pub mod stem_stock;
pub mod verdict;
