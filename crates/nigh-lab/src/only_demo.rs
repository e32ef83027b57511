//! `nigh experiment` with the demonstration alone.

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
}

impl ExperimentArgs {
    /// Runs the experiment and prints its report.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let What::Demo(demo) = self.what;
        demo.run(Machine::of_this_command(), json).await
    }
}
