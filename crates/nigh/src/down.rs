//! `nigh down`.

use std::time::{Duration, Instant};

use clap::Args;
use nigh_node::state_folder::is_held;
use nigh_node::status::DrainStatus;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// How often the command checks whether the node has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the end may take beyond the time to drain, which invocations have first and open requests after them.
const CLEARING_UP: Duration = Duration::from_secs(60);

/// Options of `nigh down`.
#[derive(Args)]
#[command(after_help = "\
Example:
  nigh down && nigh up

The node rejects new requests. Running invocations have the time of the setting `drain` to finish.")]
pub(crate) struct DownArgs {
    /// Return at once, while the node drains
    #[arg(long)]
    no_wait: bool,
}

/// Asks the running node to drain and end, and waits until another node can start in its state folder.
pub(crate) async fn run(args: &DownArgs, globals: &Globals) -> Result<(), CliError> {
    let paths = globals.paths()?;
    let draining: DrainStatus = globals.admin()?.post("/shutdown").await?;
    if args.no_wait {
        if globals.json {
            return output::json(&serde_json::json!({ "ended": false, "draining": draining }));
        }
        return output::line(format_args!("The node drains: {draining}."));
    }
    if draining.invocations > 0 && !globals.json {
        output::remark(format_args!("nigh: draining: {draining}"));
    }
    let (began, limit) = (Instant::now(), 2 * Duration::from_secs(draining.left_s) + CLEARING_UP);
    while is_held(&paths)? {
        if began.elapsed() > limit {
            let root = paths.root().display();
            return Err(CliError::Failed(format!(
                "Nigh at {root} has not ended within {} s; its own log says why. Killed it loses nothing that it has \
                 acknowledged",
                limit.as_secs()
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if globals.json {
        return output::json(&serde_json::json!({ "ended": true }));
    }
    output::line("The node has ended.")
}
