//! `nigh openwhisk`.

use clap::Subcommand;
use serde_json::json;

use crate::context::{DoorAccess, Globals};
use crate::error::CliError;
use crate::output;

/// Subcommands of `nigh openwhisk`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh openwhisk props > ~/.wskprops               then `wsk` finds this node
  wsk property set --apihost http://127.0.0.1:9401 --auth $(nigh openwhisk auth)
  nigh openwhisk auth --profile tenant-2           the key of another namespace")]
pub(crate) enum OpenWhiskCommand {
    /// Print the namespace's key in the form of OpenWhisk's clients: KEY:SECRET
    Auth,
    /// Print the content of ~/.wskprops: the API's host, the key, the namespace
    Props,
}

/// Runs it.
pub(crate) async fn run(command: OpenWhiskCommand, globals: &Globals) -> Result<(), CliError> {
    let DoorAccess { door, credentials, .. } = globals.reach(|endpoints| endpoints.lambda).await?;
    let url = door.url;
    let auth = format!("{}:{}", credentials.access_key, credentials.secret_key.reveal());
    if globals.json {
        return output::json(&json!({ "apihost": url, "auth": auth, "namespace": credentials.profile }));
    }
    match command {
        OpenWhiskCommand::Auth => output::line(auth),
        OpenWhiskCommand::Props => output::line(format_args!("APIHOST={url}\nAUTH={auth}\nNAMESPACE=_")),
    }
}
