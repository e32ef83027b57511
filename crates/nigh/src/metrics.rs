//! `nigh metrics`.

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Prints the running node's meters as they are scraped from its admin socket.
pub(crate) async fn run(globals: &Globals) -> Result<(), CliError> {
    output::bytes(&globals.admin()?.text("/metrics").await?)
}
