//! What all experiments and benches measure with: machines, peers, nodes under test, load, statistics, charts, progress.
//!
//! An instrument knows no experiment.

pub(crate) mod bare_pool;
pub(crate) mod cache_sizing;
pub(crate) mod chart;
pub(crate) mod choice;
pub(crate) mod compared_stores;
pub(crate) mod cpu_time;
pub(crate) mod error;
pub mod fault_proxy;
pub mod http_load;
pub(crate) mod kept_progress;
pub(crate) mod machine;
pub(crate) mod made_up;
pub(crate) mod measured_sizes;
pub mod node_under_test;
pub(crate) mod one_run;
pub(crate) mod open_loop;
pub(crate) mod parallel;
pub mod peer;
pub(crate) mod phase_log;
pub(crate) mod pipeline_inputs;
pub(crate) mod platform;
pub(crate) mod process_status;
pub(crate) mod programs;
pub(crate) mod progress;
pub(crate) mod recorded_invocations;
pub(crate) mod report;
pub(crate) mod report_text;
pub(crate) mod s3_door;
pub(crate) mod sample_function;
pub(crate) mod settled_cluster;
pub mod sign;
pub(crate) mod simulated_copies;
pub(crate) mod states_door;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod tcp_relay;
pub(crate) mod template;
pub(crate) mod trace_library;
pub(crate) mod tree;
pub(crate) mod verdict;
pub mod vm;
pub(crate) mod zone;
