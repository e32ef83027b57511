//! Where, when and with what an invocation runs: decisions, all of them pure.
//!
//! `scheduler` chooses a node, `sandbox_pool` a sandbox, `memory_budget` shares a node's memory out; `keep_alive`,
//! `prewarm` and `prefetch` say what is made ready; `event_queue` orders asynchronous invocations. No I/O, no clock, no
//! thread: inputs in, decisions out.

pub mod activation;
pub mod application_objects;
pub mod cost;
pub mod event_queue;
pub mod grant;
pub mod idempotence;
pub mod keep_alive;
pub mod latest_inputs;
pub mod memory_budget;
pub mod memory_growth;
pub mod memory_slack;
pub mod memory_value;
pub mod named_objects;
pub mod payload_walk;
pub mod phases;
pub mod prefetch;
pub mod prewarm;
pub mod sandbox_pool;
pub mod scheduler;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
pub mod throttle;
pub mod touched;
pub mod vacancy;
