//! Functions, their invocations and their sandboxes, and the Lambda door.
//!
//! An invocation's way: `lambda_door` -> `invoker` -> `scheduler` (pure) -> `sandbox_pool` -> `sandbox` engine,
//! answered through `runtime_api`; what happened becomes an `activation`.

pub mod activation;
pub mod cgroup;
pub mod code_archive;
pub mod code_store;
pub mod data_door;
pub mod function;
pub mod function_arn;
pub mod function_store;
pub mod grant;
pub mod hooks;
pub mod invocation;
pub mod lambda_door;
pub mod runtime_catalog;
pub mod sandbox;
pub mod scheduler;
pub mod sigv4;
