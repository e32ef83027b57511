//! Why an invocation failed, in the words of its function's user: the file, the line and the error first, then up to
//! three frames of the user's own code, what is known about a limit, and what to do. Pure.
//!
//! The facts come from the invocation's record. The error object that its caller got has the whole of what the record
//! keeps shortened.

mod advice;
mod cause;
mod frames;
mod page;
mod printing;

use nigh_node::{Activation, stack_trace};
use serde_json::Value;

use self::cause::Cause;
use self::frames::{Frame, frames, of_user};
use self::page::Page;
use crate::printable;

pub(crate) use self::printing::{print, width};

/// Frames of the user's code.
const FRAMES_MAX: usize = 3;
/// Lines of an error's message, and characters of each.
const MESSAGE_LINES_MAX: usize = 4;
const MESSAGE_CHARS_MAX: usize = 400;
/// The last lines of the function's own output.
const OUTPUT_LINES_MAX: usize = 3;

/// What is told of a failure.
struct Told<'a> {
    /// The error without its place.
    headline: String,
    trace: &'a [String],
    frames: &'a [Frame],
    packages: &'a [String],
    facts: Vec<String>,
    advice: Option<String>,
}

/// Why the invocation of `record` failed, in lines of `width` columns. `error` is the error object that its caller got,
/// or null; `log` is its log. `verbose` shows the whole message, trace and log.
pub(crate) fn shown(record: &Activation, error: &Value, log: &str, width: usize, verbose: bool) -> String {
    let cause = Cause::of(record, error);
    let told = Told {
        headline: cause.headline(),
        trace: &cause.trace,
        frames: &cause.frames,
        packages: &record.packages,
        facts: cause.facts(),
        advice: advice::advice(&cause),
    };
    told.shown(log, width, verbose)
}

/// The same for an invocation whose record is out of reach: what its caller got says less.
pub(crate) fn shown_without_record(error: &Value, log: &str, width: usize, verbose: bool) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let trace = stack_trace::lines(error);
    let told = Told {
        headline: cause::error_words(text("errorType"), cause::without_request(text("errorMessage"))),
        trace: &trace,
        frames: &frames(&trace),
        packages: &[],
        facts: Vec::new(),
        advice: None,
    };
    told.shown(log, width, verbose)
}

impl Told<'_> {
    fn shown(&self, log: &str, width: usize, verbose: bool) -> String {
        let users = of_user(self.frames, self.packages);
        let mut page = Page::new(width);
        head(&mut page, &self.headline, users.first().map(|frame| frame.place()), verbose);
        if verbose {
            self.trace.iter().for_each(|line| page.whole_line(line));
        } else {
            self.show_frames(&mut page, &users);
        }
        for fact in &self.facts {
            page.paragraph("", fact);
        }
        if let Some(advice) = &self.advice {
            page.paragraph("help:", advice);
        }
        show_output(&mut page, log, verbose);
        page.text()
    }

    fn show_frames(&self, page: &mut Page, users: &[&Frame]) {
        let shown = &users[..users.len().min(FRAMES_MAX)];
        let column = shown.iter().map(|frame| frame.place_and_function().chars().count()).max().unwrap_or(0);
        for frame in shown {
            let source = frame.source.as_deref().unwrap_or_default();
            page.line(&format!("{:column$}  {source}", frame.place_and_function()));
        }
        let others = self.frames.len() - shown.len();
        if others > 0 && !shown.is_empty() {
            page.line(&format!("… {others} more"));
        }
    }
}

/// The end of what the function itself printed; all of its log with `verbose`.
fn show_output(page: &mut Page, log: &str, verbose: bool) {
    let output: Vec<&str> = printable::lines(log).filter(|line| verbose || is_of_function(line)).collect();
    let first = if verbose { 0 } else { output.len().saturating_sub(OUTPUT_LINES_MAX) };
    if !output.is_empty() {
        page.line(if verbose { "its log:" } else { "the end of its output:" });
        for line in &output[first..] {
            if verbose { page.whole_line(&format!("  {line}")) } else { page.line(&format!("  {line}")) }
        }
    }
}

/// The error, with its place before it.
fn head(page: &mut Page, headline: &str, place: Option<String>, verbose: bool) {
    let (lines_max, chars_max) =
        if verbose { (usize::MAX, usize::MAX) } else { (MESSAGE_LINES_MAX, MESSAGE_CHARS_MAX) };
    let mut lines = headline.lines();
    let first = printable::shortened(lines.next().unwrap_or_default(), chars_max);
    match place {
        Some(place) => page.head(&format!("{place}: {first}")),
        None => page.head(&first),
    }
    let rest: Vec<&str> = lines.collect();
    for line in rest.iter().take(lines_max - 1) {
        page.paragraph("", &printable::shortened(line, chars_max));
    }
    if rest.len() > lines_max - 1 {
        page.line("…");
    }
}

/// True for a line that the function itself printed: not a line of Lambda's frame, of the runtime client or of Nigh,
/// whose content is shown above.
pub(crate) fn is_of_function(line: &str) -> bool {
    let is_frame = ["START RequestId: ", "END RequestId: ", "REPORT RequestId: "];
    let is_told =
        ["[ERROR] ", "Traceback (most recent call last):", "memory: it needed more than", "memory: the kernel"];
    !line.trim().is_empty()
        && !is_frame.iter().any(|start| line.starts_with(start))
        && !is_told.iter().any(|start| line.starts_with(start))
        // The client's trace is indented by non-breaking spaces.
        && !line.starts_with('\u{a0}')
        && ![" Task timed out after ", "/bootstrap is missing: put ", "/bootstrap cannot be executed: "]
            .iter()
            .any(|part| line.contains(part))
}

#[cfg(test)]
mod tests;
