//! A frame of `nigh top`: lines of text made of a look. Pure.
//!
//! A field that an older or newer node does not have counts as nothing.

use nigh_terms::ByteSize;
use serde_json::Value;

use super::Look;
use super::bar::bar;
use crate::output::{duration, span};
use crate::printable::shortened;

/// Columns of the names before a bar.
const NAME: usize = 9;
/// The widest bar.
const BAR_MAX: usize = 100;
/// Rows of classes of service, running invocations and members in the hierarchy.
const ROWS_MAX: usize = 5;
/// Columns of a function's name.
const FUNCTION: usize = 22;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopView {
    Hierarchy,
    Functions,
}

/// Which functions stand first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Time,
    Runs,
    Errors,
    Slowest,
}

impl Sort {
    /// The parameter `sort` of the view.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Runs => "runs",
            Self::Errors => "errors",
            Self::Slowest => "slowest",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Time => Self::Runs,
            Self::Runs => Self::Errors,
            Self::Errors => Self::Slowest,
            Self::Slowest => Self::Time,
        }
    }
}

/// What a frame is made of.
pub(super) struct Frame<'a> {
    pub(super) look: &'a Look,
    /// The look before, for rates.
    pub(super) earlier: Option<&'a Look>,
    pub(super) view: TopView,
    pub(super) sort: Sort,
    pub(super) is_frozen: bool,
    /// For how many seconds the node has not answered, and why.
    pub(super) cut: Option<(u64, &'a str)>,
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

fn whole(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn bytes(value: &Value, path: &str) -> String {
    ByteSize(whole(value, path)).to_string()
}

fn percent(part: f64, of: f64) -> String {
    if of > 0.0 { format!("{:.0} %", 100.0 * part / of) } else { "-".to_owned() }
}

/// The members of an object.
fn members<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    value.pointer(path).and_then(Value::as_object).into_iter().flatten()
}

impl Frame<'_> {
    /// At most `height` lines of at most `width` columns.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let mut lines = vec![self.head()];
        match self.view {
            TopView::Hierarchy => self.hierarchy(width, &mut lines),
            TopView::Functions => self.functions(&mut lines),
        }
        lines.truncate(height);
        lines.iter().map(|line| shortened(line, width).into_owned()).collect()
    }

    fn head(&self) -> String {
        let status = &self.look.hierarchy["status"];
        let (node, version) = (text(status, "/node"), text(status, "/version"));
        let mut head = format!("{node}  nigh {version}  up {}", span(whole(status, "/uptime_s")));
        if let Some(name) = status.pointer("/cluster/name").and_then(Value::as_str) {
            head += &format!("  cluster {name}, {} others", members(&self.look.hierarchy, "/members").count());
        }
        if status.pointer("/draining").is_some_and(|draining| !draining.is_null()) {
            head += "  DRAINING";
        }
        match self.cut {
            Some((seconds, why)) => head += &format!("  CUT OFF {seconds} s: {why}"),
            None if self.is_frozen => head += "  FROZEN",
            None => {}
        }
        head
    }

    /// The growth of a counter a second since the look before.
    fn rate(&self, path: &str) -> Option<f64> {
        let (now, before) = (&self.look.hierarchy, &self.earlier?.hierarchy);
        let seconds = (number(now, "/at") - number(before, "/at")) / 1000.0;
        let grown = number(now, path) - number(before, path);
        (seconds > 0.0 && grown >= 0.0).then(|| grown / seconds)
    }

    fn rate_text(&self, path: &str) -> String {
        self.rate(path).map_or_else(|| "-/s".to_owned(), |rate| format!("{rate:.1}/s"))
    }

    fn hierarchy(&self, width: usize, lines: &mut Vec<String>) {
        let bar_width = width.saturating_sub(NAME + 2).clamp(10, BAR_MAX);
        let named = |name: &str, rest: &str| format!("{name:<NAME$} {rest}");
        let hierarchy = &self.look.hierarchy;
        let status = &hierarchy["status"];
        time(hierarchy, bar_width, lines);
        ways(&hierarchy["llc"], lines);
        self.memory(bar_width, lines);
        running(hierarchy, lines);
        let mut nodes: Vec<String> = members(hierarchy, "/members").map(|(name, one)| member(name, one)).collect();
        let more = nodes.len().saturating_sub(ROWS_MAX);
        nodes.truncate(ROWS_MAX);
        if more > 0 {
            nodes.push(format!("and {more} more"));
        }
        if nodes.is_empty() {
            nodes.push("none".to_owned());
        }
        let invalidations = whole(hierarchy, "/invalidations");
        lines.push(named("nodes", &format!("{invalidations} invalidations on their way")));
        lines.extend(nodes.iter().map(|node| named("", node)));
        let writes = &status["writes"];
        lines.push(named(
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
        ));
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
        lines.push(format!("{:<NAME$} {}", "memory", bar(&parts, all, bar_width)));
        let size = |value: f64| ByteSize(value.max(0.0) as u64);
        lines.push(format!(
            "{:<NAME$} U used {}, G granted {}, C copies {}, f free for copies, s slack; of {}",
            "",
            size(used),
            size(granted - used),
            size(copies),
            size(all),
        ));
        let given = self.rate("/status/memory/yielded").map_or_else(|| "-".to_owned(), |rate| size(rate).to_string());
        lines.push(format!(
            "{:<NAME$} reads: {} from memory, {} fetched; cache gives {given}/s; {} objects",
            "",
            self.rate_text("/status/cache/hits"),
            self.rate_text("/status/cache/misses"),
            whole(status, "/cache/objects"),
        ));
    }

    fn functions(&self, lines: &mut Vec<String>) {
        let list = &self.look.functions;
        let window = number(list, "/window_s").max(1.0);
        lines.push(format!(
            "{} functions of {}, most {} first (s), last {}",
            whole(list, "/total"),
            text(list, "/namespace"),
            self.sort.name(),
            span(window as u64),
        ));
        lines.push(format!(
            "{:<FUNCTION$} {:>8} {:>9} {:>9} {:>6} {:>6} {:>5} {:>10} {:>10}",
            "FUNCTION", "RUNS/MIN", "P50", "P99", "COLD", "HITS", "ERR", "PEAK", "GRANTED"
        ));
        let order = list.pointer("/order").and_then(Value::as_array).into_iter().flatten();
        for name in order.filter_map(Value::as_str) {
            let one = &list["functions"][name];
            let runs = number(one, "/runs");
            let reads = number(one, "/hits") + number(one, "/misses");
            lines.push(format!(
                "{:<FUNCTION$} {:>8.1} {:>9} {:>9} {:>6} {:>6} {:>5} {:>10} {:>10}",
                shortened(name, FUNCTION),
                60.0 * runs / window,
                duration(whole(one, "/p50_us")),
                duration(whole(one, "/p99_us")),
                percent(number(one, "/cold"), runs),
                percent(number(one, "/hits"), reads),
                whole(one, "/errors"),
                bytes(one, "/peak"),
                bytes(one, "/granted"),
            ));
        }
    }
}

/// Where the time of the last invocations went.
fn time(hierarchy: &Value, bar_width: usize, lines: &mut Vec<String>) {
    let time = &hierarchy["time"];
    let parts = [('W', "wait"), ('I', "init"), ('E', "extract"), ('T', "transform"), ('L', "load")];
    let values = parts.map(|(letter, name)| (letter, number(time, &format!("/{name}_us"))));
    let all: f64 = values.iter().map(|(_, value)| value).sum();
    lines.push(format!("{:<NAME$} {}", "time", bar(&values, all, bar_width)));
    let shares = parts.iter().zip(values).map(|((letter, name), (_, value))| {
        let name = if *name == "init" { "cold" } else { *name };
        format!("{letter} {name} {}", percent(value, all))
    });
    lines.push(format!("{:<NAME$} {}", "", shares.collect::<Vec<_>>().join(", ")));
    lines.push(format!(
        "{:<NAME$} {} runs in {}, p50 {}, p99 {}, {} failed",
        "",
        whole(time, "/runs"),
        span(whole(hierarchy, "/time_window_s")),
        duration(whole(time, "/p50_us")),
        duration(whole(time, "/p99_us")),
        whole(time, "/errors"),
    ));
}

/// The classes of service with running invocations, their ways as letters; all classes if none runs.
fn ways(llc: &Value, lines: &mut Vec<String>) {
    let count = whole(llc, "/shape/ways").min(32);
    let on = llc.pointer("/level/on").and_then(Value::as_bool).unwrap_or(false);
    if count == 0 || !on {
        lines.push(format!("{:<NAME$} {}", "cache", text(llc, "/level/detail")));
        return;
    }
    let classes: Vec<&Value> = llc.pointer("/classes").and_then(Value::as_array).into_iter().flatten().collect();
    let busy = classes.iter().any(|class| whole(class, "/running") > 0);
    let shown = classes.iter().filter(|class| !busy || whole(class, "/running") > 0).take(ROWS_MAX);
    for (at, class) in shown.enumerate() {
        let letter = text(class, "/kind").chars().next().map_or('?', |kind| kind.to_ascii_uppercase());
        let mask = whole(class, "/mask");
        let letters: String = (0..count).map(|way| if (mask >> way) & 1 == 1 { letter } else { '.' }).collect();
        let name = if at == 0 { "cache" } else { "" };
        let (clos, kind, running) = (whole(class, "/clos"), text(class, "/kind"), whole(class, "/running"));
        lines.push(format!("{name:<NAME$} {letters}  class {clos} {kind}, {running} run"));
    }
}

/// The invocations that run longest.
fn running(hierarchy: &Value, lines: &mut Vec<String>) {
    let mut runs: Vec<&Value> = members(hierarchy, "/running").map(|(_, run)| run).collect();
    runs.sort_by_key(|run| whole(run, "/since"));
    let all = runs.len() as u64 + whole(hierarchy, "/running_more");
    let waiting = whole(hierarchy, "/status/sandboxes/waiting");
    lines.push(format!("{:<NAME$} {all} run, {waiting} wait", "running"));
    for run in runs.into_iter().take(ROWS_MAX) {
        let since = (number(hierarchy, "/at") - number(run, "/since")).max(0.0) as u64;
        lines.push(format!(
            "{:<NAME$} {:<FUNCTION$} {:>9}  used {} of {} granted, {} booked",
            "",
            shortened(text(run, "/function"), FUNCTION),
            duration(since * 1000),
            bytes(run, "/used"),
            bytes(run, "/limit"),
            bytes(run, "/booked"),
        ));
    }
}

/// Another node in a line.
fn member(name: &str, one: &Value) -> String {
    if let Some(why) = one.pointer("/unanswered").and_then(Value::as_str) {
        return format!("{name}: no answer: {why}");
    }
    format!(
        "{name}: {} run, granted {}, {} copies ({}), {} homes, {} unpushed",
        whole(one, "/running"),
        bytes(one, "/granted"),
        whole(one, "/copies"),
        bytes(one, "/cache_bytes"),
        whole(one, "/homes"),
        whole(one, "/unpushed"),
    )
}

#[cfg(test)]
mod tests;
