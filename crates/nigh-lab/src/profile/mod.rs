//! `nigh profile`: what functions need, measured run by run on generated inputs.

mod memory;

use clap::{Args, Subcommand};

use crate::LabError;
use crate::instrument::machine::Machine;

/// What `nigh profile` takes.
#[derive(Clone, Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    what: ProfileCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum ProfileCommand {
    /// The memory that each invocation of the sample functions needs, as rows to learn from (data/function-memory)
    Memory(memory::MemoryArgs),
}

impl ProfileArgs {
    /// Profiles and prints what was done.
    ///
    /// # Errors
    /// If something it needs is missing or fails.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let machine = Machine::of_this_command();
        match self.what {
            ProfileCommand::Memory(memory) => Box::pin(memory.run(machine, json)).await,
        }
    }
}
