//! `nigh page`: a link that opens the node's page in a browser.

use std::process::Stdio;

use clap::Args;
use nigh_node::admin::SignInLink;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// What opens a link with the desktop's browser (xdg-utils).
const OPENER: &str = "xdg-open";

/// Options of `nigh page`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh page                   print a link
  nigh page --open            open it
  nigh page --role view       for somebody who only looks

The link signs in one browser, once, within a minute; the session lasts for 12 hours. To sign in with an
access key that has a role (`nigh keys create --role view`), open the address without what follows the port.")]
pub(crate) struct PageArgs {
    /// Open the link in this desktop's browser
    #[arg(long)]
    open: bool,
    /// What the browser may do
    #[arg(long, value_name = "ROLE", value_parser = ["view", "operate"], default_value = "operate")]
    role: String,
}

/// Makes a link and prints or opens it.
pub(crate) async fn run(args: &PageArgs, globals: &Globals) -> Result<(), CliError> {
    let link: SignInLink = globals.admin()?.post(&format!("/sign-in-links?role={}", args.role)).await?;
    if args.open && !is_opened(&link.url) {
        output::remark(format_args!("nigh: {OPENER} cannot be started here; open the link yourself"));
    }
    if globals.json {
        return output::json(&link);
    }
    output::line(&link.url)
}

/// Gives `url` to the desktop, without waiting for the browser. False if there is no desktop.
fn is_opened(url: &str) -> bool {
    let mut command = tokio::process::Command::new(OPENER);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}
