//! The invoker with real sandboxes: what functions do, well and badly, and what their callers and others see of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod date_jumps;
mod gate;
mod lifecycle;
mod memory;
mod node;
mod outcomes;
mod prewarm;
#[path = "../../../nigh/tests/support/programs.rs"]
mod programs;
mod python;
mod sizing;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
