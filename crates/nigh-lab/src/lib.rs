//! The laboratory: experiments, benches, checks and load generation, which `nigh-lab` runs.
//!
//! Below are the instruments, which know no experiment (`instrument`), and the load of some tenants (`load`). Above are
//! `bench`, `check`, `demo`, `experiment`, `profile` and `selftest`, one module or folder each thing that is measured. Every
//! figure is taken beside its peer in one run, in interleaved rounds, and is printed with the
//! machine.

mod bench;
mod check;
mod demo;
mod experiment;
pub mod instrument;
mod load;
mod profile;
mod selftest;

pub use bench::BenchArgs;
pub use check::CheckArgs;
pub use experiment::ExperimentArgs;
pub use experiment::llc_tail::{kv_server, training_server};
pub use instrument::error::LabError;
pub use load::LoadArgs;
pub use profile::ProfileArgs;
pub use selftest::SelftestArgs;
