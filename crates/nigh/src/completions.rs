//! `nigh completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::error::CliError;
use crate::output;

/// Options of `nigh completions`.
#[derive(Args)]
#[command(after_help = "Example:\n  nigh completions bash > /etc/bash_completion.d/nigh")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completions of the command `C`.
pub(crate) fn run<C: CommandFactory>(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "nigh", &mut text);
    output::bytes(&text)
}
