//! The laboratory: experiments, benches, load generation, the peers' servers, statistics and plots.
//!
//! Every figure is taken beside its peer in one run, in interleaved rounds, and is printed with the machine.

pub mod bench;
mod check;
pub mod cpu_time;
mod error;
pub mod experiment;
pub mod fault_proxy;
pub mod http_load;
mod kept_progress;
pub mod load;
pub mod machine;
pub mod node_under_test;
mod parallel;
pub mod peer;
pub mod platform;
mod profile;
mod programs;
mod recorded_invocations;
pub mod s3_door;
mod selftest;
mod settled_cluster;
pub mod sign;
mod states_door;
pub mod stats;
pub mod tcp_relay;
mod tree;
pub mod vm;

pub use bench::BenchArgs;
pub use check::CheckArgs;
pub use error::LabError;
pub use experiment::ExperimentArgs;
pub use load::LoadArgs;
pub use profile::ProfileArgs;
pub use selftest::SelftestArgs;
