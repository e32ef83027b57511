//! `nigh top`: the node's memory hierarchy and its functions in a terminal, again each second.
//!
//! It shows the documents of the page (`/views/hierarchy`, `/views/functions`). `--json` prints them, a line a look, and
//! `--replay` shows such lines. It changes nothing.

mod bar;
mod frame;

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nigh_node::client::AdminClient;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use self::frame::{Frame, Sort, TopView};
use crate::context::Globals;
use crate::dev::keys::KeyTerminal;
use crate::end_signals::EndSignals;
use crate::error::CliError;
use crate::output;
use crate::printable;

/// The size of a terminal that does not tell its own.
const SIZE: (usize, usize) = (80, 24);
/// Keys that may wait.
const KEYS_MAX: usize = 16;

/// Options of `nigh top`.
#[derive(Args)]
#[command(after_help = "\
Keys: 1 hierarchy, 2 functions, s sorts, space freezes, q ends.

Examples:
  nigh top
  nigh top --once                     one look as text
  nigh --json top -n 60 > minute.jsonl
  nigh top --replay minute.jsonl")]
pub(crate) struct TopArgs {
    /// Print one look and end; so it is, too, where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    delay: f64,
    /// End after so many looks
    #[arg(long, short, value_name = "COUNT")]
    number: Option<u64>,
    /// Show what `nigh --json top` has printed, in place of a node
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// A delay: a tenth of a second to an hour.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("it is 0.1 to 3600".to_owned()) }
}

/// What a look brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Look {
    hierarchy: Value,
    functions: Value,
}

/// Where looks come from.
enum Source {
    Node(AdminClient),
    Recorded(VecDeque<Look>),
}

impl Source {
    fn open(args: &TopArgs, globals: &Globals) -> Result<Self, CliError> {
        match &args.replay {
            None => Ok(Self::Node(globals.admin()?)),
            Some(file) => Ok(Self::Recorded(recorded(file)?)),
        }
    }

    /// The next look; none if a recording is over.
    async fn next(&mut self, sort: Sort) -> Result<Option<Look>, CliError> {
        match self {
            Self::Recorded(looks) => Ok(looks.pop_front()),
            Self::Node(admin) => Ok(Some(Look {
                hierarchy: admin.get("/views/hierarchy").await?,
                functions: admin.get(&format!("/views/functions?sort={}", sort.name())).await?,
            })),
        }
    }
}

/// The looks in a file, a line each.
fn recorded(file: &Path) -> Result<VecDeque<Look>, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| CliError::Local { what: format!("reading {}", file.display()), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(at, line)| {
        serde_json::from_str::<Look>(line).map_err(|error| {
            let (file, line) = (file.display(), at + 1);
            CliError::Usage(format!("{file}:{line} is no look that `nigh --json top` has printed: {error}"))
        })
    });
    read.collect()
}

/// Shows looks until an end is asked for.
pub(crate) async fn run(args: &TopArgs, globals: &Globals) -> Result<(), CliError> {
    let mut source = Source::open(args, globals)?;
    let is_watched = stdin().is_terminal() && stdout().is_terminal();
    if globals.json || args.once || !is_watched {
        return print(args, globals.json, &mut source).await;
    }
    watch(args, &mut source).await
}

/// Prints looks: one as text, or lines of JSON.
async fn print(args: &TopArgs, json: bool, source: &mut Source) -> Result<(), CliError> {
    let number = if args.once || !json { 1 } else { args.number.unwrap_or(u64::MAX) };
    for count in 0..number {
        if count > 0 {
            tokio::time::sleep(Duration::from_secs_f64(args.delay)).await;
        }
        let Some(look) = source.next(Sort::Time).await? else { return Ok(()) };
        if json {
            output::line(serde_json::to_string(&look)?)?;
            continue;
        }
        let (width, _) = size();
        for view in [TopView::Hierarchy, TopView::Functions] {
            let frame = Frame { look: &look, earlier: None, view, sort: Sort::Time, is_frozen: false, cut: None };
            let lines = frame.lines(width, usize::MAX);
            lines.iter().try_for_each(|line| output::line(printable::shown(&stdout(), line)))?;
        }
    }
    Ok(())
}

/// The columns and rows of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
        _ => SIZE,
    }
}

/// The terminal's second screen. Dropped, the first is as it was.
struct Screen;

impl Screen {
    fn open() -> Result<Self, CliError> {
        write("\u{1b}[?1049h\u{1b}[?25l")?;
        Ok(Self)
    }

    fn show(&self, lines: &[String]) -> Result<(), CliError> {
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

fn local(what: &str) -> impl FnOnce(io::Error) -> CliError + '_ {
    move |source| CliError::Local { what: what.to_owned(), source }
}

/// Shows looks on the terminal, and does what keys ask for.
async fn watch(args: &TopArgs, source: &mut Source) -> Result<(), CliError> {
    let (press, mut pressed) = mpsc::channel(KEYS_MAX);
    let mut signals = EndSignals::handle().map_err(local("handling signals"))?;
    let _keys = KeyTerminal::open(move |key| !matches!(press.try_send(key), Err(mpsc::error::TrySendError::Closed(_))))
        .map_err(local("reading keys"))?;
    let screen = Screen::open()?;
    let (mut view, mut sort, mut is_frozen) = (TopView::Hierarchy, Sort::Time, false);
    let (mut look, mut earlier): (Option<Look>, Option<Look>) = (None, None);
    let mut cut: Option<(Instant, String)> = None;
    let mut looks_left = args.number.unwrap_or(u64::MAX);
    loop {
        if !is_frozen {
            match source.next(sort).await {
                Ok(Some(next)) => {
                    earlier = look.replace(next);
                    cut = None;
                }
                Ok(None) => return Ok(()),
                // A node that is away may come back.
                Err(error) => cut = Some((cut.map_or_else(Instant::now, |(since, _)| since), error.to_string())),
            }
            looks_left = looks_left.saturating_sub(1);
        }
        let (width, height) = size();
        match &look {
            Some(look) => {
                let cut = cut.as_ref().map(|(since, why)| (since.elapsed().as_secs(), why.as_str()));
                let frame = Frame { look, earlier: earlier.as_ref(), view, sort, is_frozen, cut };
                screen.show(&frame.lines(width, height))?;
            }
            None => {
                let why = cut.as_ref().map_or("asking the node", |(_, why)| why.as_str());
                screen.show(&[why.to_owned()])?;
            }
        }
        if looks_left == 0 {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(args.delay)) => {}
            () = signals.end() => return Ok(()),
            key = pressed.recv() => match key {
                None | Some('q') => return Ok(()),
                Some('1') => view = TopView::Hierarchy,
                Some('2') => view = TopView::Functions,
                Some('s') => sort = sort.next(),
                Some(' ') => is_frozen = !is_frozen,
                Some(_) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_recording_is_read_as_it_was_printed_and_a_wrong_line_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let look = Look { hierarchy: json!({"at": 1}), functions: json!({}) };
        let line = serde_json::to_string(&look).unwrap();
        std::fs::write(file.path(), format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!(recorded(file.path()).unwrap(), [look.clone(), look]);
        std::fs::write(file.path(), format!("{line}\nnothing\n")).unwrap();
        let error = recorded(file.path()).unwrap_err().to_string();
        assert!(error.contains(":2 is no look"), "{error}");
    }

    #[test]
    fn a_delay_has_bounds() {
        assert_eq!(seconds("2"), Ok(2.0));
        assert!(seconds("0").is_err() && seconds("x").is_err() && seconds("inf").is_err());
    }
}
