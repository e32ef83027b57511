//! Several memories with homes of shards in each, calls between them over TCP, and their ledger in a real NATS server.
//!
//! The store is one directory for all, as a store in a network is. Where NATS is not installed the tests say so and are
//! skipped.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test, where it stands")]
#![expect(clippy::print_stdout, reason = "a failed test shows its servers' last words")]

#[allow(dead_code, unreachable_pub, reason = "others need more of it")]
#[path = "../../../nigh-engine/tests/engines/servers.rs"]
mod servers;

#[path = "../../../../tests/skipped.rs"]
mod skipped;

mod compared;
mod ephemeral;
mod epochs;
mod handing_over;
mod late;
mod moves;
mod objects;
mod outside;
mod silent;
mod through;
mod transactions;
mod under_load;
mod world;
