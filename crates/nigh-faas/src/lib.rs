//! Functions, their invocations and their sandboxes, and the Lambda door.
//!
//! An invocation's way: `lambda_door` -> `invoker` -> `scheduler` (pure) -> `sandbox_pool` -> `sandbox` engine,
//! answered through `runtime_api`; what happened becomes an `activation`.

pub mod activation;
pub mod activation_log;
pub mod data_door;
pub mod function;
pub mod grant;
pub mod hooks;
pub mod invocation;
pub mod keep_alive;
pub mod log_capture;
pub mod phase_accountant;
pub mod phases;
pub mod runtime_api;
pub mod runtime_command;
pub mod runtime_protocol;
pub mod sandbox;
pub mod scheduler;
