//! One worker process: its settings, the wiring of its parts, and its reports; and the clients of its doors.
//!
//! Nothing is decided here: each other crate decides, and this one connects the parts, and starts and ends them in
//! order.

mod action_runtimes;
pub mod admin;
mod audit;
mod background;
pub mod backup;
pub mod client;
pub mod cluster;
pub mod config;
pub mod credentials;
mod data_door;
pub mod door_certificates;
pub mod endpoints;
pub mod explain;
pub mod features;
pub mod health;
mod http_adapter;
pub mod inventory;
pub mod learning;
pub mod llc;
pub mod local_cluster;
pub mod machine;
pub mod node;
pub mod node_js;
mod notifications;
mod object_users;
pub mod outside_door;
pub mod own_certificate;
mod piped_body;
pub mod profiling;
pub mod python;
mod python_client;
mod python_folder;
mod python_library;
mod recent_invocations;
pub mod reload;
mod shown_executions;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
pub mod state_folder;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod tenancy;
mod traces;
pub mod unpushed;
mod writes;

pub use nigh_data::DataOperation;
pub use nigh_invoke::event_invoker::{EventListing, ListedEvent, ShownEvent};
pub use nigh_schedule::activation::SandboxStart;
pub use nigh_schedule::activation::cost::{Cost, gb_seconds};
pub use nigh_schedule::activation::{Activation, DataCallRecord, ExceededLimit, Outcome, stack_trace};
