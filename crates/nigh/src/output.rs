//! Output: JSON for programs, tables for people, and one line on standard error for a failure.

mod table;
mod times;

use std::io::{self, IsTerminal, Write};

use nigh_node::config::ConfigError;
use nigh_terms::{Clock as _, SystemClock, Timestamp};
use serde::Serialize;

#[cfg(test)]
pub(crate) use self::table::visible_width;
pub(crate) use self::table::{Table, wrap};
pub(crate) use self::times::{duration, span};
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

/// A table with these headings; with none, a list of names and values.
pub(crate) fn table(headings: &[&str]) -> Table {
    Table::new(headings)
}

/// Prints a table, in the width of the terminal if there is one.
pub(crate) fn print_table(table: &Table) -> Result<(), CliError> {
    line(table.text(terminal_width()))
}

/// Prints a table with all its columns, whole, on a terminal too.
pub(crate) fn print_whole_table(table: &Table) -> Result<(), CliError> {
    line(table.text(None))
}

/// The width of the terminal that standard output is. None for a pipe or a file, or if the terminal does not know.
pub(crate) fn terminal_width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&out).map_or(0, |size| size.ws_col);
    (columns > 0).then_some(usize::from(columns))
}

/// A time for a table: in words on a terminal, else RFC 3339.
pub(crate) fn when(then: Timestamp) -> String {
    if io::stdout().is_terminal() { times::ago(then, SystemClock::new().wall()) } else { then.rfc3339() }
}

/// Prints why a command failed.
pub(crate) fn complain(error: &CliError) {
    let text = error.to_string();
    let mut lines: Vec<_> = text.lines().map(|line| printable::shown(&io::stderr(), line)).collect();
    // One line; but TOML's parser points at the place by further ones, and a language's tool has its own.
    let has_lines =
        matches!(error, CliError::Config(ConfigError::Syntax { .. }) | CliError::Unreadable(_) | CliError::Build(_));
    if !has_lines {
        lines = vec![lines.join("; ").into()];
    }
    // An error of standard error itself cannot be reported.
    let _ = writeln!(io::stderr().lock(), "nigh: {}", lines.join("\n"));
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
