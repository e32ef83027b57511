//! `nigh experiment` with the demonstration alone.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::LabError;
use crate::demo::DemoArgs;
use crate::instrument::machine::Machine;

/// What `nigh experiment` takes.
#[derive(Clone, Debug, Args)]
pub struct ExperimentArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Real functions on real inputs: where their time goes, directly against the store and through Nigh (OFC figure 3)
    Demo(DemoArgs),
    /// All other experiments: this build leaves them out
    #[command(external_subcommand)]
    LeftOut(Vec<OsString>),
}

impl ExperimentArgs {
    /// Runs the experiment and prints its report.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        match self.what {
            What::Demo(demo) => Box::pin(demo.run(Machine::of_this_command(), json)).await,
            What::LeftOut(words) => Err(LabError::left_out(&words)),
        }
    }
}
