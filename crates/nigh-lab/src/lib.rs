//! The laboratory: experiments, benches, checks and load generation, which `nigh-lab` runs.
//!
//! Below are the instruments, which know no experiment (`instrument`), and the load of some tenants (`load`). Above are
//! `bench`, `check`, `demo`, `experiment`, `profile`, `selftest` and `traces`, one module or folder each thing that is measured. Every
//! figure is taken beside its peer in one run, in interleaved rounds, and is printed with the machine. Without the feature
//! `all` there is the demonstration alone.

// Of the instruments the demonstration needs some.
#![cfg_attr(not(feature = "all"), allow(dead_code))]

#[cfg(feature = "all")]
mod bench;
#[cfg(feature = "all")]
mod check;
mod demo;
#[cfg(feature = "all")]
mod experiment;
pub mod instrument;
#[cfg(feature = "all")]
mod load;
#[cfg(not(feature = "all"))]
mod only_demo;
#[cfg(feature = "all")]
mod profile;
#[cfg(feature = "all")]
mod selftest;
#[cfg(feature = "all")]
mod traces;

pub use instrument::error::LabError;
#[cfg(not(feature = "all"))]
pub use only_demo::ExperimentArgs;

#[cfg(feature = "all")]
pub use {
    bench::BenchArgs, check::CheckArgs, experiment::ExperimentArgs, load::LoadArgs, profile::ProfileArgs,
    selftest::SelftestArgs,
    traces::{PackTraceArgs, PriceTracesArgs},
};
