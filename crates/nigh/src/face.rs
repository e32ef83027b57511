//! `nigh` alone: what it is, whether a node runs, and the command to type next.

use nigh_node::endpoints::{Endpoints, EndpointsError};
use nigh_node::status::Status;
use serde_json::json;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::status::{state_flag, summary};

/// Says it. That no node runs is no failure here.
pub(crate) async fn run(globals: &Globals) -> Result<(), CliError> {
    let paths = globals.paths()?;
    let status: Option<Status> = match Endpoints::read(&paths) {
        Ok(_) | Err(EndpointsError::Draining(_)) => Some(globals.admin()?.get("/status").await?),
        Err(EndpointsError::NotRunning(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let next = next(status.as_ref(), &state_flag(globals));
    if globals.json {
        return output::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "state": paths.root(),
            "running": status.is_some(),
            "endpoints": status.map(|status| status.endpoints),
            "next": next,
        }));
    }
    output::line(format_args!("Nigh {} runs AWS Lambda functions near their data.", env!("CARGO_PKG_VERSION")))?;
    match &status {
        Some(status) => output::print_table(&summary(status, paths.root()))?,
        None => output::line(format_args!("No node runs with the state folder {}.", paths.root().display()))?,
    }
    output::line(format_args!("Next: {next}"))?;
    output::line("`nigh --help` lists the commands.")
}

/// The command that a user probably needs next; `state` names the state folder where it is not the usual one.
fn next(status: Option<&Status>, state: &str) -> String {
    match status {
        None => format!("nigh up{state}"),
        Some(status) if status.draining.is_some() => format!("nigh status{state}"),
        Some(status) if status.functions == 0 => {
            format!("nigh deploy NAME --folder FOLDER --handler app.handler --runtime python3.11{state}")
        }
        Some(_) => format!("nigh invoke NAME{state}; nigh activations{state}"),
    }
}

#[cfg(test)]
mod tests {
    use nigh_node::status::DrainStatus;

    use super::*;
    use crate::status::tests::fresh;

    #[test]
    fn the_next_command_is_the_one_that_is_missing() {
        assert_eq!(next(None, " --state /s"), "nigh up --state /s");
        let mut status = fresh();
        assert!(next(Some(&status), "").starts_with("nigh invoke"));
        status.functions = 0;
        assert!(next(Some(&status), "").starts_with("nigh deploy"));
        status.draining = Some(DrainStatus { invocations: 1, left_s: 9 });
        assert_eq!(next(Some(&status), ""), "nigh status");
    }
}
