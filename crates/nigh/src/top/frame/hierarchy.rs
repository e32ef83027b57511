//! The memory hierarchy as lines, top to bottom: where the time went, last-level cache, memory, running invocations, other
//! nodes, store.

use nigh_terms::ByteSize;
use serde_json::Value;

use super::super::bar::bar;
use super::super::fields::{bytes, list, members, number, percent, text, whole};
use super::super::row::{Body, Filter, Row, Target};
use super::Frame;
use crate::output::{duration, span};
use crate::printable::shortened;

/// Columns of the names before a bar.
const NAME: usize = 9;
/// The widest bar.
const BAR_MAX: usize = 100;
/// Classes of service, running invocations and members that are shown.
const ROWS_MAX: usize = 5;
/// Columns of a function's name.
const FUNCTION: usize = 22;

fn named(name: &str, rest: &str) -> String {
    format!("{name:<NAME$} {rest}")
}

impl Frame<'_> {
    /// The growth of a counter a second since the look before.
    pub(super) fn rate(&self, path: &str) -> Option<f64> {
        let (now, before) = (&self.look.hierarchy, &self.earlier?.hierarchy);
        let seconds = (number(now, "/at") - number(before, "/at")) / 1000.0;
        let growth = number(now, path) - number(before, path);
        (seconds > 0.0 && growth >= 0.0).then(|| growth / seconds)
    }

    fn rate_text(&self, path: &str) -> String {
        self.rate(path).map_or_else(|| "-/s".to_owned(), |rate| format!("{rate:.1}/s"))
    }

    pub(super) fn hierarchy(&self, width: usize) -> Body {
        let bar_width = width.saturating_sub(NAME + 2).clamp(10, BAR_MAX);
        let hierarchy = &self.look.hierarchy;
        let mut lines = Vec::new();
        time(hierarchy, bar_width, &mut lines);
        ways(&hierarchy["llc"], &mut lines);
        self.memory(bar_width, &mut lines);
        let mut rows: Vec<Row> = lines.into_iter().map(Row::plain).collect();
        rows.extend(running(hierarchy, self.filter));
        rows.extend(nodes(hierarchy, self.filter).into_iter().map(Row::plain));
        let writes = &hierarchy["status"]["writes"];
        rows.push(Row::plain(named(
            "store",
            &format!(
                "{} unpushed ({}), oldest {}, {} failing; journal {} of {}; {} commits",
                whole(writes, "/waiting"),
                bytes(writes, "/waiting_bytes"),
                span(whole(writes, "/oldest_ms") / 1000),
                whole(writes, "/failing"),
                bytes(writes, "/journal"),
                bytes(writes, "/journal_max"),
                self.rate_text("/status/writes/commits"),
            ),
        )));
        Body { head: Vec::new(), rows }
    }

    fn memory(&self, bar_width: usize, lines: &mut Vec<String>) {
        let hierarchy = &self.look.hierarchy;
        let status = &hierarchy["status"];
        let memory = &status["memory"];
        let in_runs: f64 = members(hierarchy, "/running").map(|(_, run)| number(run, "/used")).sum();
        let granted = number(memory, "/granted");
        let used = (in_runs + number(status, "/sandboxes/idle_held")).min(granted);
        let copies = number(memory, "/cache_takes");
        let parts = [
            ('U', used),
            ('G', granted - used),
            ('C', copies),
            ('f', number(memory, "/cache") - copies),
            ('s', number(memory, "/room")),
        ];
        let all = number(memory, "/booked") + number(memory, "/cache_own");
        lines.push(named("memory", &bar(&parts, all, bar_width)));
        let size = |value: f64| ByteSize(value.max(0.0) as u64);
        lines.push(named(
            "",
            &format!(
                "U used {}, G granted {}, C copies {}, f free for copies, s slack; of {}",
                size(used),
                size(granted - used),
                size(copies),
                size(all),
            ),
        ));
        let given = self.rate("/status/memory/yielded").map_or_else(|| "-".to_owned(), |rate| size(rate).to_string());
        lines.push(named(
            "",
            &format!(
                "reads: {} from memory, {} fetched; cache gives {given}/s; {} objects",
                self.rate_text("/status/cache/hits"),
                self.rate_text("/status/cache/misses"),
                whole(status, "/cache/objects"),
            ),
        ));
    }
}

/// Where the time of the last invocations went.
fn time(hierarchy: &Value, bar_width: usize, lines: &mut Vec<String>) {
    let time = &hierarchy["time"];
    let parts = [('W', "wait"), ('I', "init"), ('E', "extract"), ('T', "transform"), ('L', "load")];
    let values = parts.map(|(letter, name)| (letter, number(time, &format!("/{name}_us"))));
    let all: f64 = values.iter().map(|(_, value)| value).sum();
    lines.push(named("time", &bar(&values, all, bar_width)));
    let shares = parts.iter().zip(values).map(|((letter, name), (_, value))| {
        let name = if *name == "init" { "cold" } else { *name };
        format!("{letter} {name} {}", percent(value, all))
    });
    lines.push(named("", &shares.collect::<Vec<_>>().join(", ")));
    let runs = format!(
        "{} runs in {}, p50 {}, p99 {}, {} failed",
        whole(time, "/runs"),
        span(whole(hierarchy, "/time_window_s")),
        duration(whole(time, "/p50_us")),
        duration(whole(time, "/p99_us")),
        whole(time, "/errors"),
    );
    lines.push(named("", &runs));
}

/// The classes of service with running invocations, their ways as letters; all classes if none runs.
fn ways(llc: &Value, lines: &mut Vec<String>) {
    let count = whole(llc, "/shape/ways").min(32);
    let on = llc.pointer("/level/on").and_then(Value::as_bool).unwrap_or(false);
    if count == 0 || !on {
        lines.push(named("cache", text(llc, "/level/detail")));
        return;
    }
    let classes: Vec<&Value> = list(llc, "/classes").collect();
    let busy = classes.iter().any(|class| whole(class, "/running") > 0);
    let shown = classes.iter().filter(|class| !busy || whole(class, "/running") > 0).take(ROWS_MAX);
    for (at, class) in shown.enumerate() {
        let letter = text(class, "/kind").chars().next().map_or('?', |kind| kind.to_ascii_uppercase());
        let mask = whole(class, "/mask");
        let letters: String = (0..count).map(|way| if (mask >> way) & 1 == 1 { letter } else { '.' }).collect();
        let name = if at == 0 { "cache" } else { "" };
        let (clos, kind, running) = (whole(class, "/clos"), text(class, "/kind"), whole(class, "/running"));
        lines.push(named(name, &format!("{letters}  class {clos} {kind}, {running} run")));
    }
}

/// The invocations that run longest.
fn running(hierarchy: &Value, filter: Filter<'_>) -> Vec<Row> {
    // What runs has no fault yet.
    let is_shown = |run: &&Value| Filter { faults_only: false, ..filter }.takes(&[text(run, "/function")], false);
    let mut runs: Vec<&Value> = members(hierarchy, "/running").map(|(_, run)| run).collect();
    runs.sort_by_key(|run| whole(run, "/since"));
    let all = runs.len() as u64 + whole(hierarchy, "/running_more");
    let waiting = whole(hierarchy, "/status/sandboxes/waiting");
    let first = Row::plain(named("running", &format!("{all} run, {waiting} wait")));
    let shown = runs.into_iter().filter(is_shown).take(ROWS_MAX).map(|run| {
        let since = (number(hierarchy, "/at") - number(run, "/since")).max(0.0) as u64;
        let function = text(run, "/function");
        let words = format!(
            "{:<FUNCTION$} {:>9}  used {} of {} granted, {} booked",
            shortened(function, FUNCTION),
            duration(since * 1000),
            bytes(run, "/used"),
            bytes(run, "/limit"),
            bytes(run, "/booked"),
        );
        Row::of(Target::Function(function.to_owned()), named("", &words))
    });
    std::iter::once(first).chain(shown).collect()
}

/// The other nodes.
fn nodes(hierarchy: &Value, filter: Filter<'_>) -> Vec<String> {
    let has_fault = |one: &Value| ["/unanswered", "/trouble"].iter().any(|path| !text(one, path).is_empty());
    let mut nodes: Vec<String> = members(hierarchy, "/members")
        .filter(|(name, one)| filter.takes(&[name.as_str()], has_fault(one)))
        .map(|(name, one)| member(name, one))
        .collect();
    let more = nodes.len().saturating_sub(ROWS_MAX);
    nodes.truncate(ROWS_MAX);
    if more > 0 {
        nodes.push(format!("and {more} more"));
    }
    if nodes.is_empty() {
        nodes.push("none".to_owned());
    }
    let invalidations = format!("{} invalidations on their way", whole(hierarchy, "/invalidations"));
    std::iter::once(named("nodes", &invalidations)).chain(nodes.iter().map(|node| named("", node))).collect()
}

/// Another node in a line.
fn member(name: &str, one: &Value) -> String {
    if let Some(why) = one.pointer("/unanswered").and_then(Value::as_str) {
        return format!("{name}: no answer: {why}");
    }
    let trouble = text(one, "/trouble");
    let trouble = if trouble.is_empty() { String::new() } else { format!("{trouble}; ") };
    format!(
        "{name}: {trouble}{} run, granted {}, {} copies ({}), {} homes, {} unpushed",
        whole(one, "/running"),
        bytes(one, "/granted"),
        whole(one, "/copies"),
        bytes(one, "/cache_bytes"),
        whole(one, "/homes"),
        whole(one, "/unpushed"),
    )
}
