//! `nigh llc explain`: which ways one invocation got, and why.

use clap::Args;
use nigh_node::explain::Explanation;
use serde::Serialize;

use crate::chosen_invocation::explained;
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// How notes of the last-level cache begin.
const STATION: &str = "cache ways: ";

/// Options of `nigh llc explain`.
#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// The invocation's id or the beginning of it, from `nigh activations` or `nigh invoke` [default: the last invocation]
    id: Option<String>,
}

#[derive(Serialize)]
struct ExplainOutput<'a> {
    id: String,
    function: String,
    /// What was decided, and what changed while it ran.
    cache_ways: Option<&'a str>,
}

/// Explains.
pub(super) async fn run(args: &ExplainArgs, globals: &Globals) -> Result<(), CliError> {
    let explanation: Explanation = explained(args.id.as_deref(), globals).await?;
    let one = &explanation.activation;
    let notes: Vec<&str> = one.notes.iter().filter_map(|note| note.strip_prefix(STATION)).collect();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    let note = note.as_deref();
    if globals.json {
        let explained = ExplainOutput { id: one.id.to_string(), function: one.function.to_string(), cache_ways: note };
        return output::json(&explained);
    }
    let none = "the level of the last-level cache was off (`nigh llc status` says why)";
    output::line(format!("{} of {}: {}", one.id, one.function, note.unwrap_or(none)))
}
