//! Fields of a look's documents. A field that an older or newer node does not have counts as nothing. Pure.

use nigh_terms::ByteSize;
use serde_json::Value;

pub(super) fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

pub(super) fn whole(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

pub(super) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn bytes(value: &Value, path: &str) -> String {
    ByteSize(whole(value, path)).to_string()
}

pub(super) fn percent(part: f64, of: f64) -> String {
    if of > 0.0 { format!("{:.0} %", 100.0 * part / of) } else { "-".to_owned() }
}

/// The members of an object.
pub(super) fn members<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    value.pointer(path).and_then(Value::as_object).into_iter().flatten()
}

/// The values of a list.
pub(super) fn list<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// The date and time of `rfc3339` up to the second.
pub(super) fn second(rfc3339: &str) -> String {
    rfc3339.chars().take("2026-11-26T10:00:00".len()).collect::<String>().replace('T', " ")
}

/// The last part of an id, enough to tell it from others.
pub(super) fn short_id(id: &str) -> &str {
    id.char_indices().rev().nth(7).map_or(id, |(at, _)| &id[at..])
}
