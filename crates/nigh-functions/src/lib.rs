//! Functions as they are deployed. `function_store`, `code_store`, `layer_store` and `schedule_store` keep them; the other
//! modules describe them and do no I/O, but for `code_archive`.

/// What makes a function an OpenWhisk action.
pub mod action;
/// Unpacks archives from outside, within limits.
pub mod code_archive;
/// The folders on disk that hold functions' code.
pub mod code_store;
/// The settings of a function's asynchronous invocations.
pub mod event_config;
/// A deployed function, and what an invoker asks of a store.
pub mod function;
/// Names of functions in ARNs.
pub mod function_arn;
/// Whether a function benefits from the object cache.
pub mod function_caching;
/// Whether a function has an outbound network.
pub mod function_network;
/// The deployed functions: documents in the registry, code on disk.
pub mod function_store;
/// Requests and responses of function URLs.
pub mod function_url;
/// Archives that many functions share.
pub mod layer_store;
/// The runtimes of this node.
pub mod runtime_catalog;
/// When functions run by themselves.
pub mod schedule;
/// The schedules: documents in the registry.
pub mod schedule_store;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
