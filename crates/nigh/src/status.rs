//! `nigh status`.

use nigh_node::status::Status;

use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// Shows the running node.
pub(crate) async fn run(globals: &Globals) -> Result<(), CliError> {
    let status: Status = globals.admin()?.get("/status").await?;
    if globals.json {
        return output::json(&status);
    }
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("node", format!("{}, incarnation {}, process {}", status.node, status.incarnation, status.pid));
    row("version", status.version.clone());
    row("up", format!("{} s, since {}", status.uptime_s, status.started));
    if let Some(draining) = &status.draining {
        row("draining", coloured(Colour::Yellow, &format!("takes nothing new; {draining}")));
    }
    row("s3", status.endpoints.s3.clone());
    row("lambda", status.endpoints.lambda.clone());
    for level in &status.levels {
        let detail = if level.on {
            level.detail.clone()
        } else {
            format!("{} {}", coloured(Colour::Yellow, "off:"), level.detail)
        };
        row(&level.name, detail);
    }
    let cache = &status.cache;
    let reads = cache.hits + cache.misses + cache.past;
    let share = if reads > 0 {
        format!(", {:.0} % of {reads} reads", cache.hits as f64 * 100.0 / reads as f64)
    } else {
        String::new()
    };
    let past = if cache.past > 0 { format!(" ({} past it: too large or in parts)", cache.past) } else { String::new() };
    row("cached", format!("{} of {} in {} objects{share}{past}", cache.kept, cache.budget, cache.objects));
    let pool = &status.sandboxes;
    row(
        "sandboxes",
        format!("{} of {}, {} idle, {} of {} booked", pool.alive, pool.max, pool.idle, pool.booked, pool.memory),
    );
    for stems in &status.stems {
        let trouble =
            stems.trouble.as_ref().map_or_else(String::new, |why| coloured(Colour::Yellow, &format!("; {why}")));
        let coming = if stems.coming > 0 { format!(", {} coming", stems.coming) } else { String::new() };
        row("prewarmed", format!("{}: {} of {} ready{coming}{trouble}", stems.runtime, stems.ready, stems.wanted));
    }
    row("invocations", format!("{} running, {} waiting", pool.running, pool.waiting));
    row("functions", status.functions.to_string());
    row("resident", status.resident.to_string());
    if status.records_dropped > 0 {
        row("records", coloured(Colour::Red, &format!("{} lost: the disk is too slow", status.records_dropped)));
    }
    output::print_table(&table)
}
