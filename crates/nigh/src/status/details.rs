//! Everything that a node tells of itself, for `nigh status --verbose`: one line a part, in the order of the start.

use nigh_node::features::FeaturesStatus;
use nigh_node::status::{FastPathStatus, MemoryStatus, Status, WritesStatus};
use nigh_terms::ByteSize;

use crate::output::{self, Colour, Table, coloured};

/// `1 segment`, `2 segments`.
pub(super) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Acknowledged writes that the store does not have.
pub(super) fn unpushed(writes: &WritesStatus) -> String {
    let WritesStatus { waiting, watched, ephemeral, lost, failing, conflicts, homeless, .. } = *writes;
    let mut said = count(waiting as u64, "write");
    if waiting > 0 {
        said += &format!(", {}, the oldest {:.1} s ago", writes.waiting_bytes, writes.oldest_ms as f64 / 1000.0);
    }
    if failing > 0 {
        said += &coloured(Colour::Yellow, &format!(", {failing} failed and retried"));
    }
    for (count, what) in [
        (watched, "pushed, and watched because an earlier push may still arrive"),
        (ephemeral, "ephemeral"),
        (lost, "ephemeral and lost"),
    ] {
        if count > 0 {
            said += &format!("; {count} {what}");
        }
    }
    if homeless > 0 {
        let text = format!("; {homeless} for a bucket that was removed from the store (`nigh objects unpushed`)");
        said += &coloured(Colour::Yellow, &text);
    }
    if conflicts > 0 {
        said +=
            &coloured(Colour::Yellow, &format!("; {conflicts} stored under a conflict key, because an outsider wrote"));
    }
    said + &format!("; journal {} of {}", writes.journal, writes.journal_max)
}

/// How sandboxes and the cache share the node's memory.
fn shared(memory: &MemoryStatus) -> String {
    let MemoryStatus { booked, cache_own, granted, cache, cache_takes, slack, room, grown, yielded, .. } = *memory;
    let mut said = format!(
        "of {}: {granted} granted to sandboxes, {cache_takes} cached (limit {cache}), {room} free (slack {slack}); {}, \
         {yielded} freed by the cache",
        booked + cache_own,
        count(grown, "growth")
    );
    for (count, what) in [
        (memory.refused, "limits not lowered by the kernel"),
        (memory.idle_ended, "idle sandboxes ended for their memory"),
        (memory.retried, "invocations retried"),
        (memory.killed, "killed for lack of memory"),
    ] {
        if count > 0 {
            said += &coloured(Colour::Yellow, &format!("; {count} {what}"));
        }
    }
    said
}

/// What clients of the fast path hold, and how Nigh answered them.
fn held(fast: &FastPathStatus) -> String {
    let FastPathStatus { connections, holders, held, held_segments, over, segments, inline, copies, for_http } = *fast;
    let over = if over > 0 { coloured(Colour::Yellow, &format!(" ({over} over their cap)")) } else { String::new() };
    format!(
        "{held} in {} by {}{over}, {}; answers: {}, {}, {} by copy, {for_http} over HTTP instead",
        count(held_segments, "segment"),
        count(holders, "client"),
        count(connections, "connection"),
        count(segments, "segment"),
        count(inline, "small object"),
        count(copies, "object")
    )
}

/// How many objects have recorded features, and how their headers are read.
fn looked_at(features: &FeaturesStatus) -> String {
    let FeaturesStatus { objects, bytes, looked, failed, dropped, waiting, processes, unstored: _ } = *features;
    let mut said = format!(
        "features of {objects} objects, {bytes}; {looked} headers read, {waiting} waiting, {processes} processes"
    );
    for (count, what) in [(failed, "failed"), (dropped, "dropped because too many waited")] {
        if count > 0 {
            said += &coloured(Colour::Yellow, &format!(", {count} {what}"));
        }
    }
    said
}

/// The parts of a node.
pub(super) fn table(status: &Status) -> Table {
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("node", format!("{}, incarnation {}, process {}", status.node, status.incarnation, status.pid));
    row("version", status.version.clone());
    row("up", format!("{}, since {}", output::span(status.uptime_s), status.started));
    if let Some(draining) = &status.draining {
        row("draining", coloured(Colour::Yellow, &draining.to_string()));
    }
    row("s3", status.endpoints.s3.clone());
    row("lambda", status.endpoints.lambda.clone());
    if let Some(admin) = &status.endpoints.admin {
        row("admin", format!("{admin} (`nigh page` opens the page)"));
    }
    if let Some(health) = &status.endpoints.health {
        row("health", health.clone());
    }
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
        format!("; {:.0} % of {reads} reads were hits", cache.hits as f64 * 100.0 / reads as f64)
    } else {
        String::new()
    };
    let past = if cache.past > 0 {
        format!(", {} not cached (too large, or read in parts)", cache.past)
    } else {
        String::new()
    };
    let pooled = if cache.pooled > ByteSize::ZERO {
        format!("; {} wait for another object", cache.pooled)
    } else {
        String::new()
    };
    let objects = count(cache.objects, "object");
    row("cached", format!("{} of {}, {objects}{share}{past}{pooled}", cache.kept, cache.budget));
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
            "{} of {}; {} idle, using {}; running ones booked {} of {}",
            pool.alive, pool.max, pool.idle, pool.idle_held, pool.booked, pool.memory
        ),
    );
    if let Some(memory) = &status.memory {
        row("memory", shared(memory));
    }
    for stems in &status.stems {
        let trouble =
            stems.trouble.as_ref().map_or_else(String::new, |why| coloured(Colour::Yellow, &format!("; {why}")));
        let coming = if stems.coming > 0 { format!(", {} starting", stems.coming) } else { String::new() };
        row("prewarmed", format!("{}: {} of {} ready{coming}{trouble}", stems.runtime, stems.ready, stems.wanted));
    }
    row("invocations", format!("{} running, {} waiting", pool.running, pool.waiting));
    row("functions", status.functions.to_string());
    row("resident", status.resident.to_string());
    if status.records_dropped > 0 {
        row(
            "records",
            coloured(Colour::Red, &format!("{} activation records lost: the disk is too slow", status.records_dropped)),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unpushed_is_told_by_number_bytes_age_and_trouble() {
        let (journal, journal_max) = (ByteSize::mib(8), ByteSize::mib(64));
        let none = WritesStatus { journal, journal_max, ..WritesStatus::default() };
        assert_eq!(unpushed(&none), "0 writes; journal 8 MiB of 64 MiB");
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
            "5 writes, 3 MiB, the oldest 1.2 s ago",
            ", 2 failed and retried",
            "; 4 pushed, and watched",
            "; 3 for a bucket that was removed from the store (`nigh objects unpushed`)",
            "; 1 stored under a conflict key",
        ] {
            assert!(said.contains(part), "{part:?} in {said:?}");
        }
    }
}
