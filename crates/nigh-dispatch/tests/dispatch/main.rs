//! Controllers and nodes of a cluster in one process: real memories with homes, a real NATS server as their ledger, real
//! calls over TCP. What a function does is done by the test's own runner, by the memory, through the gate; sandboxes have
//! their own tests. Where NATS is not installed the tests say so and are skipped.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test, where it stands")]
#![expect(clippy::print_stdout, reason = "a failed test shows its servers' last words")]

#[allow(dead_code, unreachable_pub, reason = "others need more of it")]
#[path = "../../../nigh-engine/tests/engines/servers.rs"]
mod servers;

#[path = "../../../../tests/skipped.rs"]
mod skipped;

#[allow(dead_code, unreachable_pub, reason = "others need more of it")]
#[path = "../../../nigh-objects/tests/cluster/late.rs"]
mod late;

#[allow(dead_code, unreachable_pub, reason = "others need more of it")]
#[path = "../../../nigh-objects/tests/cluster/world.rs"]
mod world;

mod invocations;
mod locality;
mod losses;
mod processes;
mod takeovers;
mod triggers;
