//! Functions, their invocations and their sandboxes, and the Lambda door.
//!
//! An invocation's way: `lambda_door` -> `invoker` -> `scheduler` (pure) -> `sandbox_pool` -> `sandbox` engine,
//! answered through `runtime_api`; what happened becomes an `activation`.

pub mod activation;
pub mod activation_log;
mod admission;
mod booked_memory;
pub mod cache_ways;
pub mod cgroup;
pub mod cloud_event;
pub mod code_archive;
pub mod code_store;
pub mod data_door;
pub mod event_config;
pub mod event_invoker;
pub mod event_queue;
pub mod event_row;
mod execution;
pub mod function;
pub mod function_arn;
pub mod function_caching;
pub mod function_network;
pub mod function_store;
pub mod function_url;
pub mod gate;
pub mod grant;
pub mod hooks;
pub mod http_passage;
pub mod invocation;
pub mod invocation_meter;
pub mod invocation_record;
pub mod invoker;
mod invoker_settings;
pub mod keep_alive;
pub mod lambda_door;
pub mod layer_store;
mod live_sandbox;
pub mod log_capture;
pub mod named_objects;
pub mod object_features;
pub mod object_sizes;
pub mod phase_accountant;
pub mod phases;
pub mod prewarm;
mod prewarmer;
pub mod runtime_api;
pub mod runtime_catalog;
pub mod runtime_command;
mod runtime_input;
pub mod runtime_protocol;
pub mod sandbox;
pub mod sandbox_pool;
pub mod scheduler;
pub mod sigv4;
mod stem_stock;
pub mod verdict;
