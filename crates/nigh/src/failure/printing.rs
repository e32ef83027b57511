//! Prints why an invocation failed, on standard error.

use std::io::{IsTerminal as _, stderr};

use crate::output::{self, Colour, coloured_for};
use crate::printable;

/// The width where there is no terminal, or one that does not know it.
const WIDTH: usize = 100;

/// The columns of the terminal that standard error is.
pub(crate) fn width() -> usize {
    let stderr = stderr();
    if !stderr.is_terminal() {
        return WIDTH;
    }
    let columns = rustix::termios::tcgetwinsize(&stderr).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH } else { columns }
}

/// Prints `text`, its first line in red; on a terminal control characters are written out.
pub(crate) fn print(text: &str) {
    for (at, line) in text.lines().enumerate() {
        let line = printable::shown(&stderr(), line);
        if at == 0 {
            output::remark(coloured_for(&stderr(), Colour::Red, &line));
        } else {
            output::remark(line);
        }
    }
}
