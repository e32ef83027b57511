//! What engines promise, asked of all of them by one suite; and what the cluster's engine does when its servers fail.
//!
//! The servers are real: as many nats-server processes as a test wants, on loopback, in a folder of temporary files. Where
//! the program is missing a test says so and passes.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking and may talk")]

mod damage;
mod faults;
mod fencing;
mod history;
mod limits;
mod servers;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod suite_histories;
mod suite_homes;
mod suite_ledger;
mod suite_membership;
mod suite_registry;
mod under_test;
