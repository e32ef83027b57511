//! The terminal's second screen.

use std::io::{Write as _, stdout};

use crate::error::CliError;
use crate::printable;

/// The size of a terminal that does not tell its own.
const SIZE: (usize, usize) = (80, 24);

/// The columns and rows of the terminal.
pub(super) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        _ => SIZE,
    }
}

/// The second screen. Dropped, the first is as it was.
pub(super) struct Screen;

impl Screen {
    pub(super) fn open() -> Result<Self, CliError> {
        write("\u{1b}[?1049h\u{1b}[?25l")?;
        Ok(Self)
    }

    pub(super) fn show(&self, lines: &[String]) -> Result<(), CliError> {
        let mut text = "\u{1b}[H".to_owned();
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&printable::shown(&stdout(), line));
            // What an earlier, longer line has left.
            text.push_str("\u{1b}[K");
        }
        text.push_str("\u{1b}[J");
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone cannot be set back.
        let _ = write("\u{1b}[?25h\u{1b}[?1049l");
    }
}

fn write(text: &str) -> Result<(), CliError> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}
