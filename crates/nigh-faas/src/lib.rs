//! Functions, their invocations and their sandboxes, and the Lambda door.
//!
//! An invocation's way: `lambda_door` -> `invoker` -> `scheduler` (pure) -> `sandbox_pool` -> `sandbox` engine,
//! answered through `runtime_api`; what happened becomes an `activation`.

pub mod activation;
pub mod cgroup;
pub mod function;
pub mod grant;
pub mod hooks;
pub mod invocation;
pub mod sandbox;
pub mod scheduler;
