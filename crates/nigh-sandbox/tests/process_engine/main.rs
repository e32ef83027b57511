//! The engines against the real kernel: real sandboxes, real cgroups, real processes.
//!
//! As root every test runs under Nigh's own engine. `elsewhere` runs the same tests again under runc, as a user without
//! rights, and where the kernel refuses namespaces.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "all of this is tests")]

mod elsewhere;
mod harness;
mod life;
mod limits;
mod network;
mod runc;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod walls;
