//! Texts: lines and words; rows and fields of tables and of JSON. Of a long one the beginning is read, and the rest
//! taken in proportion.

use super::facts::Facts;
use super::window::{ObjectHead, Stop};

/// Bytes of a long text that are read: a row may be long.
const SAMPLE_BYTES: u64 = 64 * 1024;
/// What may stand between the fields of a table.
const SEPARATORS: [u8; 4] = [b',', b'\t', b';', b'|'];

/// What kind of text it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Table,
    Json,
    JsonLines,
    Other(&'static str),
}

impl Form {
    fn of(object: &ObjectHead<'_>, sample: &[u8]) -> Self {
        let ending = object.name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
        let called = object.content_type.split(';').next().unwrap_or_default().trim();
        match (ending.as_str(), called) {
            ("csv" | "tsv", _) | (_, "text/csv" | "text/tab-separated-values") => Self::Table,
            ("ndjson" | "jsonl", _) | (_, "application/x-ndjson") => Self::JsonLines,
            ("json" | "geojson", _) | (_, "application/json") => Self::Json,
            ("html" | "htm", _) | (_, "text/html") => Self::Other("html"),
            ("xml" | "svg", _) | (_, "application/xml" | "text/xml" | "image/svg+xml") => Self::Other("xml"),
            // Who says nothing: the beginning does.
            _ => match sample.trim_ascii_start() {
                [b'{' | b'[', ..] => Self::Json,
                sample if sample.starts_with(b"<?xml") => Self::Other("xml"),
                sample if sample.len() > 8 && sample[..9].eq_ignore_ascii_case(b"<!doctype") => Self::Other("html"),
                _ => Self::Other("text"),
            },
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Table => "csv",
            Self::Json | Self::JsonLines => "json",
            Self::Other(word) => word,
        }
    }
}

/// Any text.
pub(super) fn text(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let wanted = object.size.min(SAMPLE_BYTES);
    let (sample, read) = match object.bytes(0, wanted) {
        Ok(sample) => (sample, Ok(())),
        // What is there tells something, if no more should come.
        Err(stop) => (object.beginning(), Err(stop)),
    };
    let is_whole = sample.len() as u64 == object.size;
    let scale = if sample.is_empty() { 1.0 } else { object.size as f64 / sample.len() as f64 };
    let newlines = sample.iter().filter(|byte| **byte == b'\n').count();
    // A last line may have no end.
    let unended = usize::from(sample.last().is_some_and(|byte| *byte != b'\n'));
    let lines = if is_whole { (newlines + unended) as f64 } else { (newlines as f64 * scale).round().max(1.0) };
    let words = sample.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
    let form = Form::of(object, sample);
    facts.word("in_format", form.word());
    facts.number("in_lines", lines);
    facts.number("in_words", (words as f64 * scale).round());
    match form {
        // The first line names the columns.
        Form::Table => {
            facts.number("in_rows", (lines - 1.0).max(0.0));
            facts.count("in_fields", fields(sample));
        }
        Form::JsonLines => {
            facts.number("in_rows", lines);
            facts.count("in_fields", Members::of(sample).top);
        }
        Form::Json => {
            let members = Members::of(sample);
            let count = if members.ended { members.top as f64 } else { (members.top as f64 * scale).round() };
            if members.is_list {
                facts.number("in_rows", count);
                facts.count("in_fields", members.first);
            } else {
                facts.number("in_fields", count);
            }
        }
        Form::Other(_) => {}
    }
    read
}

/// The fields of the first line, by the separator that it has most often outside quotes.
fn fields(sample: &[u8]) -> u64 {
    let (mut counts, mut is_quoted) = ([0_u64; SEPARATORS.len()], false);
    for byte in sample {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' if !is_quoted => break,
            byte if !is_quoted => {
                if let Some(at) = SEPARATORS.iter().position(|separator| separator == byte) {
                    counts[at] += 1;
                }
            }
            _ => {}
        }
    }
    counts.into_iter().max().unwrap_or_default() + 1
}

/// What stands in a JSON text's list or object.
#[derive(Default)]
struct Members {
    is_list: bool,
    /// Members of the whole.
    top: u64,
    /// Members of its first member, if that is a list or an object.
    first: u64,
    /// The whole has ended.
    ended: bool,
}

impl Members {
    /// Counts what stands between commas, by depth; whether it is JSON in all else is not asked.
    fn of(sample: &[u8]) -> Self {
        let sample = sample.trim_ascii_start();
        let mut found = Self { is_list: sample.first() == Some(&b'['), ..Self::default() };
        let (mut depth, mut is_text, mut is_escaped) = (0_u32, false, false);
        // Whether something stands behind the last comma, on the first two levels.
        let mut begun = [false; 2];
        for byte in sample {
            if is_text {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' => is_escaped = true,
                    b'"' => is_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    found.stands(depth, &mut begun);
                    depth += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        found.ended = true;
                        break;
                    }
                    if depth == 1 {
                        begun[1] = false;
                    }
                }
                b',' => {
                    if let Some(begun) = (depth as usize).checked_sub(1).and_then(|at| begun.get_mut(at)) {
                        *begun = false;
                    }
                }
                byte if byte.is_ascii_whitespace() => {}
                byte => {
                    is_text = *byte == b'"';
                    found.stands(depth, &mut begun);
                }
            }
        }
        found
    }

    /// Something stands at `depth`.
    fn stands(&mut self, depth: u32, begun: &mut [bool; 2]) {
        match depth {
            1 if !begun[0] => {
                (self.top, begun[0], begun[1]) = (self.top + 1, true, false);
            }
            2 if !begun[1] && self.top == 1 => (self.first, begun[1]) = (self.first + 1, true),
            _ => {}
        }
    }
}
