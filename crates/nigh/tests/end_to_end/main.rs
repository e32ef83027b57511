//! The whole of Nigh, as its users have it: the real `nigh up`, the real command, real sandboxes, an unmodified boto3
//! handler; and what a kill at any point leaves.
//!
//! Needs a Python with awslambdaric and boto3: `NIGH_TEST_PYTHON`, else the one that `make deps` installs.

#![expect(clippy::unwrap_used, reason = "tests: a broken expectation panics")]

mod admin_api;
mod attachments;
mod audit;
mod backup;
mod builds;
mod cache_ways;
mod cluster_operations;
mod cluster_outsiders;
mod cluster_records;
mod cluster_schedules;
mod cluster_views;
mod cluster_workflows;
mod command_line;
mod crashes;
mod development;
mod events;
mod failures;
mod fast_path;
mod functions;
mod health;
mod isolation;
mod keys;
mod learning;
mod load;
mod metrics;
mod namespaces;
mod nested;
mod newcomers;
mod object_features;
mod openwhisk;
mod page_views;
mod platform;
#[path = "../support/programs.rs"]
mod programs;
mod projects;
mod runtimes;
mod schedules;
mod sdks;
mod segments;
mod sessions;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod small_disk;
mod store_down;
mod templates;
mod terminal;
mod tls;
mod traces;
mod workflows;
mod wsk;
