//! Sandboxes: the engines that make them, their cgroups, and the Runtime API inside.
//!
//! Mechanism only: which sandbox is made, kept or ended is decided in nigh-schedule. The program `nigh-sandbox` is the
//! first process of each sandbox.

pub mod booked_memory;
pub mod cgroup;
mod client_lines;
pub mod data_door;
pub mod log_capture;
pub mod runtime_api;
pub mod runtime_command;
pub mod runtime_protocol;
pub mod sandbox;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
