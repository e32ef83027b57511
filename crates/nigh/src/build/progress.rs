//! What a build tells while it goes on.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::output;
use crate::printable;

/// A tool's line is replaced by the next one after this at the earliest, so that a terminal is not flooded.
const PACE: Duration = Duration::from_millis(50);
/// The columns of a terminal whose width is not known.
const COLUMNS: usize = 79;

/// Hears of a build.
pub(crate) trait Progress: Send {
    /// A step begins, or has ended.
    fn step(&mut self, text: &str);
    /// A tool says this now.
    fn tool(&mut self, line: &str);
}

/// Steps on standard error, each a line; on a terminal below them what the tool says now, in one line that changes.
#[derive(Debug)]
pub(crate) struct StderrProgress {
    is_quiet: bool,
    shown: Option<Instant>,
}

impl StderrProgress {
    /// Says nothing if `is_quiet`.
    pub(crate) const fn new(is_quiet: bool) -> Self {
        Self { is_quiet, shown: None }
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            // An error of standard error itself cannot be reported.
            let _ = write!(io::stderr().lock(), "\r\u{1b}[2K");
        }
    }
}

impl Progress for StderrProgress {
    fn step(&mut self, text: &str) {
        self.clear();
        if !self.is_quiet {
            output::remark(text);
        }
    }

    fn tool(&mut self, line: &str) {
        let is_early = self.shown.is_some_and(|shown| shown.elapsed() < PACE);
        if self.is_quiet || is_early || !io::stderr().is_terminal() {
            return;
        }
        let columns = output::terminal_width().map_or(COLUMNS, |width| width.saturating_sub(1));
        let shown = printable::shown(&io::stderr(), line);
        let short = printable::shortened(&shown, columns.saturating_sub(2));
        // An error of standard error itself cannot be reported.
        let _ = write!(io::stderr().lock(), "\r\u{1b}[2K  {short}");
        self.shown = Some(Instant::now());
    }
}

impl Drop for StderrProgress {
    fn drop(&mut self) {
        self.clear();
    }
}
