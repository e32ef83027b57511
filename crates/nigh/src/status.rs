//! `nigh status`.

use nigh_node::features::FeaturesStatus;
use nigh_node::status::{FastPathStatus, MemoryStatus, Status, WritesStatus};

use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// Which writes the store does not have.
fn unpushed(writes: &WritesStatus) -> String {
    let WritesStatus { waiting, watched, ephemeral, lost, failing, conflicts, homeless, .. } = *writes;
    let mut said = format!("{waiting} writes wait to be pushed");
    if waiting > 0 {
        said += &format!(": {}, the oldest for {:.1} s", writes.waiting_bytes, writes.oldest_ms as f64 / 1000.0);
    }
    if failing > 0 {
        said += &coloured(Colour::Yellow, &format!(", {failing} after a failure"));
    }
    for (count, what) in [
        (watched, "pushed and watched, as an earlier push may yet land"),
        (ephemeral, "in memory alone"),
        (lost, "ephemeral and lost"),
    ] {
        if count > 0 {
            said += &format!("; {count} {what}");
        }
    }
    if homeless > 0 {
        let text = format!("; {homeless} for a bucket that somebody else removed (`nigh objects unpushed`)");
        said += &coloured(Colour::Yellow, &text);
    }
    if conflicts > 0 {
        said += &coloured(Colour::Yellow, &format!("; {conflicts} kept under another key, as somebody else wrote"));
    }
    said + &format!("; {} of {} in the journal", writes.journal, writes.journal_max)
}

/// How sandboxes and the cache share the node's memory.
fn shared(memory: &MemoryStatus) -> String {
    let MemoryStatus { booked, cache_own, granted, cache, cache_takes, slack, room, grown, yielded, .. } = *memory;
    let mut said = format!(
        "{granted} granted, {cache_takes} of {cache} cached, {room} free ({slack} wanted) of {}; {grown} times grown, \
         {yielded} given back by the cache",
        booked + cache_own
    );
    for (count, what) in [
        (memory.refused, "limits that the kernel did not lower"),
        (memory.idle_ended, "idle sandboxes ended for others"),
        (memory.retried, "invocations run again"),
        (memory.killed, "ended for want of memory"),
    ] {
        if count > 0 {
            said += &coloured(Colour::Yellow, &format!("; {count} {what}"));
        }
    }
    said
}

/// What clients of the fast path hold, and how they were answered.
fn held(fast: &FastPathStatus) -> String {
    let FastPathStatus { connections, holders, held, held_segments, over, segments, inline, copies, for_http } = *fast;
    let over = if over > 0 { coloured(Colour::Yellow, &format!(", {over} over their cap")) } else { String::new() };
    format!(
        "{held} in {held_segments} segments by {holders} holders{over}, {connections} connections; answers: {segments} \
         segments, {inline} small, {copies} by copy, {for_http} left to HTTP"
    )
}

/// Of how many objects more than the size is known, and of how many it is not.
fn looked_at(features: &FeaturesStatus) -> String {
    let FeaturesStatus { objects, bytes, looked, failed, dropped, waiting, processes } = *features;
    let mut said =
        format!("of {objects} objects in {bytes}; {looked} looked at, {waiting} wait, {processes} processes");
    for (count, what) in [(failed, "failed"), (dropped, "given up as too many waited")] {
        if count > 0 {
            said += &coloured(Colour::Yellow, &format!(", {count} {what}"));
        }
    }
    said
}

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
    if let Some(cluster) = &status.cluster {
        let homes =
            cluster.homes.as_ref().map_or_else(String::new, |homes| format!("; {}", crate::cluster::homes(homes)));
        row("members", format!("{} live{homes}", cluster.members.len()));
        row("coherence", crate::cluster::coherence(cluster.coherence));
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
    row("unpushed", unpushed(&status.writes));
    if let Some(fast) = &status.fast_path {
        row("held", held(fast));
    }
    if let Some(features) = &status.features {
        row("known", looked_at(features));
    }
    let pool = &status.sandboxes;
    row(
        "sandboxes",
        format!(
            "{} of {}, {} idle with {}, {} of {} booked by those that run",
            pool.alive, pool.max, pool.idle, pool.idle_held, pool.booked, pool.memory
        ),
    );
    if let Some(memory) = &status.memory {
        row("memory", shared(memory));
    }
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

#[cfg(test)]
mod tests {
    use nigh_terms::ByteSize;

    use super::*;

    #[test]
    fn what_is_unpushed_is_told_by_number_bytes_age_and_trouble() {
        let (journal, journal_max) = (ByteSize::mib(8), ByteSize::mib(64));
        let none = WritesStatus { journal, journal_max, ..WritesStatus::default() };
        assert_eq!(unpushed(&none), "0 writes wait to be pushed; 8 MiB of 64 MiB in the journal");
        let some = WritesStatus {
            waiting: 5,
            waiting_bytes: ByteSize::mib(3),
            bytes: ByteSize::mib(7),
            oldest_ms: 1234,
            failing: 2,
            watched: 4,
            homeless: 3,
            conflicts: 1,
            ..none
        };
        let said = unpushed(&some);
        for part in [
            "5 writes wait to be pushed: 3 MiB, the oldest for 1.2 s",
            ", 2 after a failure",
            "; 4 pushed and watched",
            "; 3 for a bucket that somebody else removed (`nigh objects unpushed`)",
            "; 1 kept under another key",
        ] {
            assert!(said.contains(part), "{part:?} in {said:?}");
        }
    }
}
