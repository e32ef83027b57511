//! `nigh down`.

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Asks the running node to drain and end; does not wait for it.
pub(crate) async fn run(globals: &Globals) -> Result<(), CliError> {
    globals.admin()?.post("/shutdown").await?;
    if globals.json {
        return output::json(&serde_json::json!({ "stopping": true }));
    }
    output::line("Nigh drains and ends.")
}
