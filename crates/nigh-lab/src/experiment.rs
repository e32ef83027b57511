//! `nigh experiment`: tables and figures beside the papers', each by one command.

mod demo;
mod demo_page;
mod demo_report;
pub(crate) mod llc_tail;
mod phase_log;
mod sample_function;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::LabError;
use crate::machine::Machine;

/// What `nigh experiment` takes.
#[derive(Clone, Debug, Args)]
pub struct ExperimentArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Real functions on real inputs: where their time goes, directly against the store and through Nigh (OFC figure 3)
    Demo(demo::DemoArgs),
    /// Tail latency of a key-value store beside a training job, by load and cache partition (CMU poster)
    LlcTail(llc_tail::LlcTailArgs),
}

impl ExperimentArgs {
    /// Runs the experiment and prints its report.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let machine = Machine::read(std::env::args().collect::<Vec<_>>().join(" "));
        match self.what {
            What::Demo(demo) => demo.run(machine, json).await,
            What::LlcTail(tail) => tail.run(machine, json),
        }
    }
}

fn write_page(path: &PathBuf, page: &str) -> Result<(), LabError> {
    std::fs::write(path, page).map_err(|error| LabError::file(path, &error))
}
