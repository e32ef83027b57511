//! Nodes of a cluster, over real NATS servers: homes of shards as nodes come, go and die; what one node changes in the
//! registry, others see; who is no member, or a wrong one, gets nowhere; servers that are away end nobody's life. Where the servers are not installed a test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fresh;
mod homes;
mod host;
mod machines;
mod outages;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod strangers;
mod support;
