//! Functions, the largest cached objects, and failed events, a row each. They fit 78 columns; names take what is left.

use serde_json::Value;

use super::super::fields::{bytes, list, members, number, percent, second, short_id, text, whole};
use super::super::row::{Body, Row, Target};
use super::{Frame, ObjectOrder};
use crate::output::{duration, span};
use crate::printable::shortened;

/// Columns beside the names: of functions, of objects, of events.
const FUNCTION_COLUMNS: usize = 64;
const OBJECT_COLUMNS: usize = 45;
const EVENT_COLUMNS: usize = 54;
/// The narrowest and the widest names.
const NAME_MIN: usize = 12;
const NAME_MAX: usize = 60;

fn name_width(width: usize, beside: usize) -> usize {
    width.saturating_sub(beside).clamp(NAME_MIN, NAME_MAX)
}

impl Frame<'_> {
    pub(super) fn functions(&self, functions: &Value, width: usize) -> Body {
        let window = number(functions, "/window_s").max(1.0);
        let name_width = name_width(width, FUNCTION_COLUMNS);
        let heading = format!(
            "{:<name_width$} {:>8} {:>8} {:>8} {:>5} {:>5} {:>4} {:>9} {:>9}",
            "FUNCTION", "RUNS/MIN", "P50", "P99", "COLD", "HITS", "ERR", "PEAK", "GRANTED"
        );
        let names = list(functions, "/order").filter_map(Value::as_str);
        let ones = names.map(|name| (name, &functions["functions"][name]));
        let shown = ones.filter(|(name, one)| self.filter.takes(&[*name], whole(one, "/errors") > 0));
        let rows: Vec<Row> = shown
            .map(|(name, one)| {
                let (runs, hits) = (number(one, "/runs"), number(one, "/hits"));
                let words = format!(
                    "{:<name_width$} {:>8.1} {:>8} {:>8} {:>5} {:>5} {:>4} {:>9} {:>9}",
                    shortened(name, name_width),
                    60.0 * runs / window,
                    duration(whole(one, "/p50_us")),
                    duration(whole(one, "/p99_us")),
                    percent(number(one, "/cold"), runs),
                    percent(hits, hits + number(one, "/misses")),
                    whole(one, "/errors"),
                    bytes(one, "/peak"),
                    bytes(one, "/granted"),
                );
                Row::of(Target::Function(name.to_owned()), words)
            })
            .collect();
        let about = format!(
            "{} of {} functions of {}, most {} first (s), last {}",
            rows.len(),
            whole(functions, "/total"),
            text(functions, "/namespace"),
            self.sort.name(),
            span(window as u64),
        );
        Body { head: vec![about, heading], rows }
    }

    pub(super) fn objects(&self, cached: &Value, width: usize) -> Body {
        let name_width = name_width(width, OBJECT_COLUMNS);
        let mut ones: Vec<&Value> = list(cached, "/objects").collect();
        if self.object_order == ObjectOrder::Copies {
            // The sort is stable, so those with as many copies stay in the order of their bytes.
            ones.sort_by_key(|one| std::cmp::Reverse(members(one, "/cached").count()));
        }
        let rows: Vec<Row> = ones
            .into_iter()
            .filter_map(|one| {
                let (bucket, key) = (text(one, "/bucket"), text(one, "/key"));
                let name = format!("{bucket}/{key}");
                let fault = object_fault(one);
                if !self.filter.takes(&[name.as_str()], !fault.is_empty()) {
                    return None;
                }
                let nodes: Vec<&str> = members(one, "/cached").map(|(node, _)| node.as_str()).collect();
                let words = format!(
                    "{:<name_width$} {:>9} {:>6} {:<10} {}",
                    shortened(&name, name_width),
                    bytes(one, "/bytes"),
                    nodes.len(),
                    shortened(text(one, "/home"), 10),
                    if fault.is_empty() { nodes.join(" ") } else { fault },
                );
                let target = Target::Object { bucket: bucket.to_owned(), key: key.to_owned() };
                Some(Row::of(target, words))
            })
            .collect();
        let order = match self.object_order {
            ObjectOrder::Bytes => "bytes",
            ObjectOrder::Copies => "copies",
        };
        let mut about = format!(
            "The largest {} cached here of {}, most {order} first (s); {} copies in all, {}",
            rows.len(),
            text(cached, "/namespace"),
            whole(cached, "/copies"),
            bytes(cached, "/cached_bytes"),
        );
        let silent: Vec<&str> = members(cached, "/unanswered").map(|(node, _)| node.as_str()).collect();
        if !silent.is_empty() {
            about = format!("{} did not say what they have. {about}", silent.join(" and "));
        }
        let heading = format!("{:<name_width$} {:>9} {:>6} {:<10} {}", "OBJECT", "HERE", "COPIES", "HOME", "NODES");
        Body { head: vec![about, heading], rows }
    }

    pub(super) fn events(&self, events: &Value, width: usize) -> Body {
        let why_width = width.saturating_sub(EVENT_COLUMNS).max(NAME_MIN);
        let rows: Vec<Row> = list(events, "/events")
            .filter_map(|event| {
                let (id, function) = (text(event, "/id"), text(event, "/function"));
                let reason = text(event, "/reason");
                let why = if reason.is_empty() { text(event, "/last_error") } else { reason };
                if !self.filter.takes(&[function, why, id], text(event, "/state") == "dead") {
                    return None;
                }
                let words = format!(
                    "{:<8} {:<19} {:<18} {:>5} {}",
                    short_id(id),
                    second(text(event, "/died")),
                    shortened(function, 18),
                    whole(event, "/attempts"),
                    shortened(&why.replace(['\n', '\r'], " "), why_width),
                );
                Some(Row::of(Target::Event(id.to_owned()), words))
            })
            .collect();
        let about = format!(
            "Failed events: {}; {} wait or run. `nigh events` retries and drops them",
            whole(events, "/dead"),
            whole(events, "/pending"),
        );
        let heading = format!("{:<8} {:<19} {:<18} {:>5} {}", "EVENT", "FAILED (UTC)", "FUNCTION", "TRIES", "WHY");
        Body { head: vec![about, heading], rows }
    }
}

/// What is wrong with the copies of an object, or will be right soon; empty if nothing is.
fn object_fault(one: &Value) -> String {
    let mut versions: Vec<(u64, u64)> =
        members(one, "/cached").map(|(_, version)| (whole(version, "/epoch"), whole(version, "/sequence"))).collect();
    versions.sort_unstable();
    versions.dedup();
    match (list(one, "/pending").count(), versions.len()) {
        (0, 0 | 1) => String::new(),
        (0, several) => format!("{several} versions"),
        (pending, _) => format!("invalidating {pending}"),
    }
}
