//! What is deployed: functions, the descriptions of them, their code, layers and runtimes.
//!
//! `function`, `action`, `event_config`, `function_network`, `function_caching`, `function_arn` and `function_url` are
//! descriptions, read and checked without I/O; `function_store`, `code_store` and `layer_store` keep what is deployed.

pub mod action;
pub mod code_archive;
pub mod code_store;
pub mod event_config;
pub mod function;
pub mod function_arn;
pub mod function_caching;
pub mod function_network;
pub mod function_store;
pub mod function_url;
pub mod layer_store;
pub mod runtime_catalog;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
