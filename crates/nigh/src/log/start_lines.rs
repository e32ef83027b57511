//! The lines of the log that wait while a node starts, so that a terminal first shows where the node listens.
//!
//! A warning never waits, and what came before it is written with it. A start that fails loses no line.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes that wait; the line that exceeds them is written with all before it.
const WAITING_MAX: usize = 64 << 10;

/// Where the log is written.
#[derive(Clone)]
pub(super) struct LogOutput(Arc<Mutex<Lines>>);

struct Lines {
    /// None if lines are written at once.
    waiting: Option<Vec<u8>>,
    out: Box<dyn Write + Send>,
}

impl Lines {
    fn add(&mut self, line: &[u8], level: Level) -> io::Result<()> {
        match &mut self.waiting {
            Some(waiting) if level > Level::WARN && waiting.len() + line.len() <= WAITING_MAX => {
                waiting.extend_from_slice(line);
                Ok(())
            }
            _ => {
                self.release()?;
                self.out.write_all(line)
            }
        }
    }

    /// Writes the lines that wait; from now on none does.
    fn release(&mut self) -> io::Result<()> {
        match self.waiting.take() {
            Some(lines) => self.out.write_all(&lines),
            None => Ok(()),
        }
    }
}

impl LogOutput {
    pub(super) fn new(out: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Lines { waiting: None, out: Box::new(out) })))
    }

    /// From now on lines wait, until what this returns is dropped.
    pub(super) fn wait(&self) -> StartLines {
        self.lock().waiting = Some(Vec::new());
        StartLines(self.clone())
    }

    fn line(&self, level: Level) -> LogLine<'_> {
        LogLine { output: self, level }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for LogOutput {
    type Writer = LogLine<'a>;

    /// For what has no level: it does not wait.
    fn make_writer(&'a self) -> LogLine<'a> {
        self.line(Level::ERROR)
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> LogLine<'a> {
        self.line(*line.level())
    }
}

/// Writes one line of the log.
pub(super) struct LogLine<'a> {
    output: &'a LogOutput,
    level: Level,
}

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.output.lock().add(line, self.level)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.lock().out.flush()
    }
}

/// The lines of a start. Dropping this writes them.
pub(crate) struct StartLines(LogOutput);

impl Drop for StartLines {
    fn drop(&mut self) {
        // An error of standard error itself cannot be reported.
        let _ = self.0.lock().release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(output: &LogOutput, level: Level, line: &str) {
        output.line(level).write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn lines_wait_until_the_node_has_told_where_it_listens() {
        let screen = Screen::default();
        let output = LogOutput::new(screen.clone());
        let waiting = output.wait();
        log(&output, Level::INFO, "one ");
        log(&output, Level::DEBUG, "two ");
        assert_eq!(screen.text(), "");
        drop(waiting);
        assert_eq!(screen.text(), "one two ");
        log(&output, Level::INFO, "three");
        assert_eq!(screen.text(), "one two three");
    }

    #[test]
    fn a_warning_is_written_at_once_with_what_came_before_it() {
        let screen = Screen::default();
        let output = LogOutput::new(screen.clone());
        let _waiting = output.wait();
        log(&output, Level::INFO, "one ");
        log(&output, Level::WARN, "two ");
        log(&output, Level::INFO, "three");
        assert_eq!(screen.text(), "one two three");
    }

    #[test]
    fn no_more_lines_wait_than_have_room() {
        let screen = Screen::default();
        let output = LogOutput::new(screen.clone());
        let _waiting = output.wait();
        log(&output, Level::INFO, &"x".repeat(WAITING_MAX));
        assert_eq!(screen.text(), "");
        log(&output, Level::INFO, "y");
        assert_eq!(screen.text().len(), WAITING_MAX + 1);
    }
}
