//! The S3 door over real HTTP, in front of a real object memory and directory store.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests: a broken expectation is to panic, and skips and figures are to be seen"
)]

mod audit;
mod bad_input;
mod bounded;
mod checksums;
mod client;
mod fast_hostile;
mod fast_path;
mod fast_system;
mod invocation_end;
mod objects;
mod reads;
mod running;
mod sdks;
mod serving;
mod sign;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod transactions;
mod uploads;
