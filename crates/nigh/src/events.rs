//! `nigh events`.

use clap::{Args, Subcommand};
use nigh_node::{EventListing, ListedEvent, ShownEvent};
use nigh_terms::{FunctionName, InvocationId};

use crate::context::{Globals, invocation};
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// Characters of a reason in a row.
const REASON_MAX: usize = 60;
/// Events in one answer.
const EVENTS_MAX: usize = 1000;

/// Subcommands of `nigh events`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh events list                  what waits or runs, and dead letters: what failed for good
  nigh events list --dead           dead letters alone
  nigh events retry --all           retry all dead letters, when the function is repaired
  nigh events drop ID")]
pub(crate) enum EventsCommand {
    /// List events that wait or run, the oldest first, then dead letters, the newest first
    #[command(visible_alias = "ls")]
    List {
        /// Only dead letters: events that failed for good
        #[arg(long)]
        dead: bool,
        /// Only events of this function
        #[arg(long)]
        function: Option<FunctionName>,
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show an event with its input
    Show {
        /// The event's request id
        id: String,
    },
    /// Retry a dead letter from the beginning
    Retry(WhichArgs),
    /// Drop a dead letter, or an event that waits
    #[command(visible_alias = "rm")]
    Drop(WhichArgs),
}

/// The chosen events.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WhichArgs {
    /// The event's request id
    id: Option<String>,
    /// All dead letters
    #[arg(long)]
    all: bool,
}

/// Runs it.
pub(crate) async fn run(command: EventsCommand, globals: &Globals) -> Result<(), CliError> {
    let namespace = globals.namespace().await?;
    let admin = globals.admin()?;
    match command {
        EventsCommand::List { dead, function, limit } => {
            // The node cuts the list before a function is looked for in it.
            let listed = if function.is_some() { EVENTS_MAX } else { limit };
            let path = format!("/events?namespace={namespace}&all={}&limit={listed}", !dead);
            let mut listing: EventListing = admin.get(&path).await?;
            if let Some(function) = &function {
                listing.events.retain(|event| event.function == *function);
                listing.events.truncate(limit);
            }
            if globals.json {
                return output::json(&listing);
            }
            print(&listing)?;
            output::remark(counts(&listing, dead, function.as_ref()));
            Ok(())
        }
        EventsCommand::Show { id } => {
            let shown: ShownEvent = admin.get(&format!("/events/{namespace}/{}", invocation(&id)?)).await?;
            if globals.json { output::json(&shown) } else { show(&shown) }
        }
        EventsCommand::Retry(which) => change(&which, "retry", "retried", globals).await,
        EventsCommand::Drop(which) => change(&which, "drop", "dropped", globals).await,
    }
}

async fn change(which: &WhichArgs, verb: &str, done: &str, globals: &Globals) -> Result<(), CliError> {
    let namespace = globals.namespace().await?;
    let admin = globals.admin()?;
    let ids: Vec<InvocationId> = match &which.id {
        Some(id) => vec![invocation(id)?],
        None => {
            let path = format!("/events?namespace={namespace}&limit={EVENTS_MAX}");
            admin.get::<EventListing>(&path).await?.events.into_iter().map(|event| event.id).collect()
        }
    };
    for id in &ids {
        admin.give(&format!("/events/{namespace}/{id}/{verb}"), &()).await?;
    }
    if globals.json {
        return output::json(&serde_json::json!({ done: ids }));
    }
    match ids.as_slice() {
        [one] => output::line(format_args!("{done} {one}")),
        all => output::line(format_args!("{done} {} events", all.len())),
    }
}

fn print(listing: &EventListing) -> Result<(), CliError> {
    let mut table = output::table(&["ID", "FUNCTION", "STATE", "TRIES", "ACCEPTED", "NEXT", "WHY"])
        .less_important(&["TRIES", "NEXT", "ACCEPTED"]);
    for event in &listing.events {
        table.add_row(row(event));
    }
    output::print_table(&table)
}

/// How many events the node has of those that were asked for, and how many of them the list has, if not all.
fn counts(listing: &EventListing, only_dead: bool, function: Option<&FunctionName>) -> String {
    let EventListing { pending, dead, events } = listing;
    let (all, counted) = if only_dead {
        (*dead, format!("{dead} dead letters"))
    } else {
        (pending + dead, format!("{pending} waiting or running, {dead} dead letters"))
    };
    match function {
        Some(function) => format!("{} of {function}; of all functions {counted}", events.len()),
        None if events.len() < all => format!("{counted}; the first {} are listed", events.len()),
        None => counted,
    }
}

fn row(event: &ListedEvent) -> [String; 7] {
    let colour = if event.state == "dead" { Colour::Red } else { Colour::Yellow };
    let reason = why(event).unwrap_or_default().replace('\n', " ");
    let reason = printable::shortened(&reason, REASON_MAX);
    [
        event.id.to_string(),
        event.function.to_string(),
        coloured(colour, &event.state),
        event.attempts.to_string(),
        event.accepted.clone(),
        event.due_in_s.map_or_else(|| "-".to_owned(), |due| format!("in {due:.0} s")),
        printable::shown(&std::io::stdout(), &reason).into_owned(),
    ]
}

/// Why the event is dead, or what went wrong in its last attempt.
fn why(event: &ListedEvent) -> Option<&str> {
    event.reason.as_deref().or(event.last_error.as_deref())
}

fn show(shown: &ShownEvent) -> Result<(), CliError> {
    let event = &shown.event;
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("id", event.id.to_string());
    row("function", event.function.to_string());
    row("state", event.state.clone());
    row("tries", event.attempts.to_string());
    row("accepted", event.accepted.clone());
    if let Some(died) = &event.died {
        row("failed for good", died.clone());
    }
    if let Some(why) = why(event) {
        row("why", printable::shown(&std::io::stdout(), why).into_owned());
    }
    output::print_table(&table)?;
    output::json(&shown.payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(state: &str, reason: Option<&str>, last_error: Option<&str>) -> ListedEvent {
        ListedEvent {
            id: InvocationId::now(),
            function: FunctionName::new("worker").unwrap(),
            state: state.to_owned(),
            attempts: 1,
            bytes: 2,
            accepted: "2026-11-26T10:00:00.000Z".to_owned(),
            due_in_s: Some(58.4),
            reason: reason.map(str::to_owned),
            died: None,
            last_error: last_error.map(str::to_owned),
        }
    }

    #[test]
    fn a_row_says_why_an_event_is_dead_or_waits_for_another_attempt() {
        let why = |event: ListedEvent| row(&event)[6].clone();
        assert_eq!(why(event("waiting", None, Some("ValueError: no\nmore"))), "ValueError: no more");
        assert_eq!(why(event("dead", Some("RetriesExhausted: KeyError: 1"), None)), "RetriesExhausted: KeyError: 1");
        assert_eq!(why(event("running", None, None)), "");
    }

    #[test]
    fn what_is_counted_below_a_list_is_in_it_or_the_line_says_how_much_is() {
        let events = vec![event("waiting", None, None), event("dead", Some("why"), None)];
        let whole = EventListing { pending: 1, dead: 1, events };
        assert_eq!(counts(&whole, false, None), "1 waiting or running, 1 dead letters");
        let cut = EventListing { pending: 3, ..whole.clone() };
        assert_eq!(counts(&cut, false, None), "3 waiting or running, 1 dead letters; the first 2 are listed");
        let dead = EventListing { events: whole.events[1..].to_vec(), ..whole.clone() };
        assert_eq!(counts(&dead, true, None), "1 dead letters");
        let other = EventListing { events: Vec::new(), ..whole };
        let function = FunctionName::new("other").unwrap();
        let said = "0 of other; of all functions 1 waiting or running, 1 dead letters";
        assert_eq!(counts(&other, false, Some(&function)), said);
    }
}
