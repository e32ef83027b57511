//! Pages for one row: a function with its last runs, an object, an invocation, a failed event, and logs. Pure.

use nigh_terms::{ByteSize, Timestamp};
use serde_json::Value;

use super::fields::{bytes, list, members, number, percent, second, short_id, text, whole};
use super::row::{Cursor, Row, Target};
use crate::output::{duration, span};
use crate::printable;

/// The columns of an invocation's steps beside their line of time.
const STEP_COLUMNS: usize = 46;
/// The narrowest and the widest line of time.
const TIME_MIN: usize = 10;
const TIME_MAX: usize = 60;
/// The longest input of an event that is shown, in characters.
const INPUT_MAX: usize = 2000;

/// What is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub(super) target: Target,
    /// The log, in place of the details.
    pub(super) is_log: bool,
}

/// What stands over the lists until it is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) of: PageRequest,
    pub(super) rows: Vec<Row>,
    pub(super) cursor: Cursor,
}

impl Page {
    pub(super) fn new(of: PageRequest, rows: Vec<Row>) -> Self {
        Self { of, rows, cursor: Cursor::default() }
    }

    /// Its first line.
    pub(super) fn title(&self) -> String {
        let what = match &self.of.target {
            Target::Function(name) => format!("function {name}"),
            Target::Object { bucket, key } => format!("object {bucket}/{key}"),
            Target::Invocation(id) => format!("invocation {id}"),
            Target::Event(id) => format!("event {id}"),
        };
        if self.of.is_log { format!("logs of {what}") } else { what }
    }
}

/// The rows of a document, or why the node refused it.
fn or_refused(document: &Value, rows: impl FnOnce(&Value) -> Vec<Row>) -> Vec<Row> {
    match document.get("refused").and_then(Value::as_str) {
        Some(why) => printable::lines(why).map(Row::plain).collect(),
        None => rows(document),
    }
}

fn at(millis: u64) -> String {
    second(&Timestamp(millis).rfc3339())
}

/// A function and its last runs, the newest first.
pub(super) fn function(document: &Value) -> Vec<Row> {
    or_refused(document, |one| {
        let reads = number(one, "/hits") + number(one, "/misses");
        let mut rows = vec![
            Row::plain(format!(
                "{}, {}, {} booked, at most {}, changed {}",
                text(one, "/runtime"),
                text(one, "/handler"),
                bytes(one, "/memory"),
                span(whole(one, "/timeout_ms").div_ceil(1000)),
                at(whole(one, "/modified")),
            )),
            Row::plain(format!(
                "last {}: {} runs, {} failed, p50 {}, p99 {}, cold {}, from memory {}",
                span(whole(one, "/window_s")),
                whole(one, "/runs"),
                whole(one, "/errors"),
                duration(whole(one, "/p50_us")),
                duration(whole(one, "/p99_us")),
                percent(number(one, "/cold"), number(one, "/runs")),
                percent(number(one, "/hits"), reads),
            )),
            Row::plain(""),
            Row::plain(format!(
                "{:<8} {:<19} {:>9} {:>9} {:>9} {:>5} {:>9} {}",
                "RUN", "ENDED (UTC)", "WAITED", "COLD", "TOOK", "HITS", "PEAK", "ENDED"
            )),
        ];
        let mut runs: Vec<(&String, &Value)> = members(one, "/last_runs").collect();
        runs.sort_by_key(|(_, run)| std::cmp::Reverse(whole(run, "/ended_ms")));
        rows.extend(runs.into_iter().map(|(key, run)| {
            // The key is the id and the attempt.
            let id = key.rsplit_once('-').map_or(key.as_str(), |(id, _)| id);
            let reads = number(run, "/hits") + number(run, "/misses");
            let words = format!(
                "{:<8} {:<19} {:>9} {:>9} {:>9} {:>5} {:>9} {}",
                short_id(id),
                at(whole(run, "/ended_ms")),
                duration(whole(run, "/wait_us")),
                duration(whole(run, "/init_us")),
                duration(whole(run, "/duration_us")),
                percent(number(run, "/hits"), reads),
                bytes(run, "/peak"),
                if run.get("failed").and_then(Value::as_bool).unwrap_or(false) { "failed" } else { "answered" },
            );
            Row::of(Target::Invocation(id.to_owned()), words)
        }));
        rows
    })
}

fn version(value: &Value) -> String {
    format!("{}.{}", whole(value, "/epoch"), whole(value, "/sequence"))
}

/// An object: where it is, and the invocations that used it, the newest first.
pub(super) fn object(document: &Value) -> Vec<Row> {
    or_refused(document, |one| {
        let copies: Vec<String> =
            members(one, "/cached").map(|(node, its)| format!("{node} (version {})", version(its))).collect();
        let store = match one.get("unpushed").filter(|unpushed| !unpushed.is_null()) {
            None => "in the store".to_owned(),
            Some(write) => {
                format!("not in the store yet: {}, {} attempts failed", text(write, "/mode"), whole(write, "/failures"))
            }
        };
        let or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
        let mut rows: Vec<Row> = [
            format!(
                "{}, version {}, written {}, {}",
                bytes(one, "/size"),
                version(&one["version"]),
                at(whole(one, "/modified")),
                or(text(one, "/content_type").to_owned(), "no type"),
            ),
            format!("copies in memory: {}", or(copies.join(", "), "none")),
            format!("home: {}; {store}", or(text(one, "/home").to_owned(), "not known here")),
        ]
        .map(Row::plain)
        .into();
        let pending = list(one, "/pending").count();
        if pending > 0 {
            rows.push(Row::plain(format!("{pending} nodes have not acknowledged yet that older copies are invalid")));
        }
        rows.push(Row::plain(""));
        rows.push(Row::plain(format!(
            "{:<8} {:<19} {:<22} {:<9} {:>9} {:>9}",
            "USED BY", "ENDED (UTC)", "FUNCTION", "HOW", "BYTES", "TOOK"
        )));
        let mut users: Vec<(&String, &Value)> = members(one, "/users").collect();
        users.sort_by_key(|(_, user)| std::cmp::Reverse(whole(user, "/ended")));
        rows.extend(users.into_iter().map(|(id, user)| {
            let words = format!(
                "{:<8} {:<19} {:<22} {:<9} {:>9} {:>9}",
                short_id(id),
                at(whole(user, "/ended")),
                printable::shortened(text(user, "/function"), 22),
                text(user, "/served"),
                bytes(user, "/bytes"),
                duration(whole(user, "/took_us")),
            );
            Row::of(Target::Invocation(id.clone()), words)
        }));
        rows
    })
}

/// What a step took on a line of the whole time.
fn line_of_time(step: &Value, total_us: u64, width: usize) -> String {
    let column = |us: u64| (us as u128 * width as u128 / u128::from(total_us.max(1))) as usize;
    let from = column(whole(step, "/at_us")).min(width - 1);
    let to = column(whole(step, "/at_us").saturating_add(whole(step, "/took_us"))).clamp(from + 1, width);
    let letter = match text(step, "/kind") {
        "wait" => '.',
        "init" => '%',
        "run" => '-',
        "read" => 'R',
        "write" => 'W',
        _ => '?',
    };
    let drawn = (0..width).map(|at| if (from..to).contains(&at) { letter } else { ' ' });
    drawn.collect()
}

/// An invocation: where its time went, and why it got what it got.
pub(super) fn explanation(document: &Value, width: usize) -> Vec<Row> {
    or_refused(document, |explained| {
        let one = &explained["activation"];
        let mut rows = vec![
            Row::of(
                Target::Function(text(one, "/function").to_owned()),
                format!(
                    "{}, requested {}, attempt {}",
                    text(one, "/function"),
                    at(whole(one, "/start")),
                    whole(one, "/attempt")
                ),
            ),
            Row::plain(format!("{} in all: {}", duration(whole(explained, "/total_us")), outcome(&one["outcome"]))),
        ];
        match text(one, "/exceeded/setting") {
            "" => {}
            "memory" => rows.push(Row::plain(format!("exceeded: memory, {} booked", bytes(one, "/exceeded/booked")))),
            setting => rows.push(Row::plain(format!(
                "exceeded: {}, {}",
                setting.replace('_', " "),
                duration(whole(one, "/exceeded/limit_us"))
            ))),
        }
        rows.push(Row::plain(format!(
            "memory: peak {}, {} granted, {} booked; reads from memory {}",
            one.get("peak_memory")
                .and_then(Value::as_u64)
                .map_or_else(|| "-".to_owned(), |peak| ByteSize(peak).to_string()),
            bytes(one, "/granted"),
            bytes(one, "/booked"),
            percent(number(one, "/hits"), number(one, "/hits") + number(one, "/misses")),
        )));
        let time_width = width.saturating_sub(STEP_COLUMNS).clamp(TIME_MIN, TIME_MAX);
        for step in list(explained, "/steps") {
            let size = whole(step, "/bytes");
            let size = if size > 0 { format!(", {}", ByteSize(size)) } else { String::new() };
            rows.push(Row::plain(format!(
                "|{}| {:>9} {}{size}",
                line_of_time(step, whole(explained, "/total_us"), time_width),
                duration(whole(step, "/took_us")),
                text(step, "/what"),
            )));
        }
        rows.push(Row::plain(". waiting  % starting a sandbox  - handler  R reading  W writing"));
        let placement = text(one, "/placement");
        if !placement.is_empty() {
            rows.push(Row::plain(format!("placed: {placement}")));
        }
        rows.extend(list(one, "/notes").filter_map(Value::as_str).map(|note| Row::plain(format!("note: {note}"))));
        if let Some(trace) = one.get("trace_id").and_then(Value::as_str) {
            rows.push(Row::plain(format!("trace: {trace}")));
        }
        rows.extend(list(one, "/stack_trace").filter_map(Value::as_str).map(Row::plain));
        rows
    })
}

/// How an invocation ended, in words.
fn outcome(outcome: &Value) -> String {
    let kind = text(outcome, "/kind").replace('_', " ");
    let why = ["/error_type", "/message", "/reason"].map(|path| text(outcome, path));
    let parts = std::iter::once(kind.as_str()).chain(why).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(": ").replace(['\n', '\r'], " ")
}

/// A failed event: why, and its input.
pub(super) fn event(document: &Value) -> Vec<Row> {
    or_refused(document, |one| {
        let mut rows = vec![Row::plain(format!(
            "{} after {} tries, accepted {}",
            if text(one, "/state") == "dead" { "failed" } else { text(one, "/state") },
            whole(one, "/attempts"),
            second(text(one, "/accepted")),
        ))];
        for (name, path) in [("why", "/reason"), ("last error", "/last_error")] {
            let why = text(one, path);
            rows.extend(printable::lines(why).map(|line| Row::plain(format!("{name}: {line}"))));
        }
        let input = one.get("payload").map(Value::to_string).unwrap_or_default();
        rows.push(Row::plain(format!("input: {}", printable::shortened(&input, INPUT_MAX))));
        rows.push(Row::plain(""));
        rows
    })
}

/// The lines of a log, or a word in their place.
fn log_rows(log: &str) -> Vec<Row> {
    let lines: Vec<Row> = printable::lines(log.trim_end()).map(Row::plain).collect();
    if lines.is_empty() { vec![Row::plain("It printed nothing.")] } else { lines }
}

/// The log of an explained invocation.
pub(super) fn log(document: &Value) -> Vec<Row> {
    or_refused(document, |explained| {
        let one = &explained["activation"];
        let omitted = whole(one, "/log_omitted");
        let mut rows = Vec::new();
        if omitted > 0 {
            rows.push(Row::plain(format!("{} before this are not kept", ByteSize(omitted))));
        }
        rows.extend(log_rows(text(one, "/log")));
        rows
    })
}

/// The logs of several invocations.
pub(super) fn logs(entries: &[Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    for entry in entries.iter().filter(|entry| entry.get("id").is_some()) {
        let id = text(entry, "/id");
        let (start, took) = (second(text(entry, "/start")), duration(whole(entry, "/duration_us")));
        let words = format!("== {} {start}, {}, {took}", short_id(id), text(entry, "/outcome"));
        rows.push(Row::of(Target::Invocation(id.to_owned()), words));
        rows.extend(log_rows(text(entry, "/log")));
    }
    if rows.is_empty() {
        rows.push(Row::plain("No invocation has printed anything."));
    }
    rows
}

#[cfg(test)]
mod tests;
