//! Where, when and with what an invocation runs: decisions, all of them pure. No I/O, no clock, no thread: inputs in,
//! decisions out.

/// The record of an ended invocation, and what follows from the record: phases, cost, touched objects, a second run.
pub mod activation;
/// Orders asynchronous invocations: which event runs when, how often, and what happens to it afterwards.
pub mod event_queue;
/// What an invocation's input contains, what the invocation will probably read, and what is prefetched for it.
pub mod inputs;
/// How long idle sandboxes live.
pub mod keep_alive;
/// Divides a node's memory between sandboxes and the cache.
pub mod memory;
/// How many pre-warmed sandboxes of each runtime are kept ready.
pub mod prewarm;
/// Chooses an invocation's sandbox on its node, and when sandboxes are made and ended.
pub mod sandbox_pool;
/// Chooses an invocation's node in a cluster.
pub mod scheduler;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
