//! Output: JSON for programs, tables for people, and one line on standard error for a failure.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::error::CliError;
use crate::printable;

/// Prints `value` as one JSON document.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<(), CliError> {
    let text =
        if io::stdout().is_terminal() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    line(text?)
}

/// Prints one line.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), CliError> {
    writeln!(io::stdout().lock(), "{text}").map_err(CliError::Output)
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// A table with these headings, or none, whose columns are separated by spaces.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !headings.is_empty() {
        table.set_header(headings.iter().copied());
    }
    table
}

/// Prints a table without indentation.
pub(crate) fn print_table(table: &Table) -> Result<(), CliError> {
    line(flush_left(table))
}

fn flush_left(table: &Table) -> String {
    let text = table.trim_fmt();
    text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Prints why a command failed.
pub(crate) fn complain(error: &CliError) {
    let text = error.to_string();
    let text = text.replace('\n', "; ");
    // Always one line; an error of standard error itself cannot be reported.
    let _ = writeln!(io::stderr().lock(), "nigh: {}", printable::shown(&io::stderr(), &text));
}

/// Prints why a command failed, for a program: the message, a door's code, and the exit code.
pub(crate) fn complain_json(error: &str, code: Option<&str>, exit: u8) {
    // An error of standard error itself cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{}", serde_json::json!({ "error": error, "code": code, "exit": exit }));
}

/// Prints a remark on standard error.
pub(crate) fn remark(text: impl std::fmt::Display) {
    // An error of standard error itself cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A colour, on a terminal that wants one (no-color.org).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
    Dim,
}

/// True if `stream` is a terminal and `NO_COLOR` is not set.
pub(crate) fn wants_colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `text` in `colour`, if standard output wants one.
pub(crate) fn coloured(colour: Colour, text: &str) -> String {
    coloured_for(&io::stdout(), colour, text)
}

/// `text` in `colour`, if its `stream` wants one.
pub(crate) fn coloured_for(stream: &impl IsTerminal, colour: Colour, text: &str) -> String {
    let code = match colour {
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Blue => 34,
        Colour::Dim => 2,
    };
    if wants_colour(stream) { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Microseconds as people read them: `850 us`, `1.2 ms`, `3.40 s`.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_two_or_three_figures() {
        assert_eq!(duration(850), "850 us");
        assert_eq!(duration(1_250), "1.2 ms");
        assert_eq!(duration(3_400_000), "3.40 s");
    }

    #[test]
    fn a_table_has_its_columns_in_line() {
        let mut rows = table(&["name", "size"]);
        rows.add_row(["a", "1"]).add_row(["longer", "22"]);
        let text = flush_left(&rows);
        assert!(text.starts_with("name"));
        let columns: Vec<_> = text.lines().map(|line| line.find(['s', '1', '2']).unwrap()).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
