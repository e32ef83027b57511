//! The laboratory: experiments, benches, checks and load generation, which `nigh-lab` runs.
//!
//! `instrument` has what all of them use and imports none of them; `load` plays the load of some tenants. `bench`, `check`, `demo`,
//! `experiment`, `profile`, `selftest` and `traces` use both, with a module or folder for each thing that is measured. Every figure is taken
//! beside its peer in one run, in interleaved rounds, and is printed with the machine. Without the feature `all` there is the
//! demonstration alone.

// The demonstration does not use all instruments.
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
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
#[cfg(feature = "all")]
mod traces;

pub use instrument::error::LabError;
#[cfg(not(feature = "all"))]
pub use only_demo::ExperimentArgs;

#[cfg(feature = "all")]
pub use {
    bench::BenchArgs,
    check::CheckArgs,
    experiment::ExperimentArgs,
    load::LoadArgs,
    profile::ProfileArgs,
    selftest::SelftestArgs,
    traces::{PackTraceArgs, PriceTracesArgs},
};
