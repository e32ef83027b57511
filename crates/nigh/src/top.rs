//! `nigh top`: the node's memory hierarchy, functions, largest cached objects and failed events in a terminal, again each
//! second.
//!
//! It shows documents of the page (`/views/…`, `/explain`, `/logs`). `--json` prints the lists' documents, a line a look, and
//! `--replay` shows such lines. It changes nothing.

mod bar;
mod fields;
mod frame;
mod keys;
mod page;
mod row;
mod screen;
mod source;
mod state;
mod window;

use std::io::{self, IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::frame::{Frame, ObjectOrder, Sort, TopView};
use self::keys::{Key, KeyDecoder};
use self::row::Filter;
use self::screen::{Screen, size};
use self::source::{Look, LookRequest, Source};
use self::state::{Command, TopState};
use self::window::MARK_COLUMNS;
use crate::context::Globals;
use crate::dev::keys::KeyTerminal;
use crate::end_signals::EndSignals;
use crate::error::CliError;
use crate::output;
use crate::printable;

/// Bytes of keys that may wait.
const KEYS_MAX: usize = 64;
/// How long a lone escape waits for the rest of a key.
const ESCAPE_WAITS: Duration = Duration::from_millis(50);

/// Options of `nigh top`.
#[derive(Args)]
#[command(after_help = "\
Keys:
  1 2 3 4   hierarchy, functions, largest cached objects, failed events
  /         show only names with the text that follows; with ! in front, all others
  f         show only what has a fault
  s, space  sort, freeze
  j k       move, as the arrows do; Enter opens details, l the log, Esc goes back
  q         end

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

/// Shows looks until an end is asked for.
pub(crate) async fn run(args: &TopArgs, globals: &Globals) -> Result<(), CliError> {
    let source = Source::open(args.replay.as_deref(), globals).await?;
    let is_watched = stdin().is_terminal() && stdout().is_terminal();
    if globals.json || args.once || !is_watched {
        return print(args, globals.json, source).await;
    }
    watch(args, source).await
}

/// Prints looks: one as text, or lines of JSON.
async fn print(args: &TopArgs, json: bool, mut source: Source) -> Result<(), CliError> {
    let number = if args.once || !json { 1 } else { args.number.unwrap_or(u64::MAX) };
    let all = LookRequest { sort: Sort::Time, is_filtered: false, with_objects: true };
    for count in 0..number {
        if count > 0 {
            tokio::time::sleep(Duration::from_secs_f64(args.delay)).await;
        }
        let Some(look) = source.next(all).await? else { return Ok(()) };
        if json {
            output::line(serde_json::to_string(&look)?)?;
            continue;
        }
        let (width, _) = size();
        for view in TopView::ALL {
            let frame = Frame {
                look: &look,
                earlier: None,
                view,
                sort: Sort::Time,
                object_order: ObjectOrder::Bytes,
                filter: Filter::default(),
                is_frozen: false,
                cut: None,
            };
            let lines = frame.lines(width, usize::MAX);
            lines.iter().try_for_each(|line| output::line(printable::shown(&stdout(), line)))?;
        }
    }
    Ok(())
}

fn local(what: &str) -> impl FnOnce(io::Error) -> CliError + '_ {
    move |source| CliError::Local { what: what.to_owned(), source }
}

/// The last look, the one before, and for how long the node has not answered.
#[derive(Default)]
struct Looks {
    last: Option<Look>,
    earlier: Option<Look>,
    cut: Option<(Instant, String)>,
}

impl Looks {
    /// Takes the next look. False if a recording is over.
    async fn take(&mut self, source: &mut Source, asked: LookRequest) -> bool {
        match source.next(asked).await {
            Ok(Some(mut next)) => {
                if next.objects.is_null()
                    && let Some(last) = &self.last
                {
                    next.objects = last.objects.clone();
                }
                self.earlier = self.last.replace(next);
                self.cut = None;
            }
            Ok(None) => return false,
            // A node that is away may come back.
            Err(error) => {
                let since = self.cut.take().map_or_else(Instant::now, |(since, _)| since);
                self.cut = Some((since, error.to_string()));
            }
        }
        true
    }

    fn cut(&self) -> Option<(u64, &str)> {
        self.cut.as_ref().map(|(since, why)| (since.elapsed().as_secs(), why.as_str()))
    }

    /// The frame of the last look; none if there is none yet.
    fn frame<'a>(&'a self, state: &'a TopState) -> Option<Frame<'a>> {
        Some(state.frame(self.last.as_ref()?, self.earlier.as_ref(), self.cut()))
    }

    fn draw(&self, state: &TopState, screen: &Screen) -> Result<(), CliError> {
        match self.frame(state) {
            Some(frame) => screen.show(&state.screen(&frame, size())),
            None => {
                let why = self.cut().map_or("asking the node", |(_, why)| why);
                screen.show(&[why.to_owned()])
            }
        }
    }
}

/// Shows looks on the terminal, and does what keys ask for.
async fn watch(args: &TopArgs, mut source: Source) -> Result<(), CliError> {
    let (press, mut pressed) = mpsc::channel(KEYS_MAX);
    let mut signals = EndSignals::handle().map_err(local("handling signals"))?;
    let _keys = KeyTerminal::open(move |key| !matches!(press.try_send(key), Err(mpsc::error::TrySendError::Closed(_))))
        .map_err(local("reading keys"))?;
    let screen = Screen::open()?;
    let (mut state, mut decoder, mut looks) = (TopState::default(), KeyDecoder::default(), Looks::default());
    let delay = Duration::from_secs_f64(args.delay);
    let mut looks_left = args.number.unwrap_or(u64::MAX);
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            due = Instant::now() + delay;
            if !state.is_frozen() {
                if !looks.take(&mut source, state.request()).await {
                    return Ok(());
                }
                looks_left = looks_left.saturating_sub(1);
            }
        }
        looks.draw(&state, &screen)?;
        if looks_left == 0 {
            return Ok(());
        }
        let wakes = if decoder.is_begun() { due.min(Instant::now() + ESCAPE_WAITS) } else { due };
        let key: Option<Key> = tokio::select! {
            () = sleep_until(wakes) => decoder.settle(),
            () = signals.end() => return Ok(()),
            byte = pressed.recv() => match byte {
                None => return Ok(()),
                // The terminal gives bytes, each as the character with its number.
                Some(byte) => u8::try_from(u32::from(byte)).ok().and_then(|byte| decoder.push(byte)),
            },
        };
        let Some(key) = key else { continue };
        let rows = state.rows(looks.frame(&state).as_ref(), size().0);
        match state.press(key, &rows) {
            Command::Draw => {}
            // A recording goes on by itself.
            Command::Look if source.is_node() => due = Instant::now(),
            Command::Look => {}
            Command::Open(request) => {
                let rows = source
                    .page(&request, size().0.saturating_sub(MARK_COLUMNS))
                    .await
                    .map_err(|error| error.to_string());
                state.open(request, rows);
            }
            Command::Quit => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_has_bounds() {
        assert_eq!(seconds("2"), Ok(2.0));
        assert!(seconds("0").is_err() && seconds("x").is_err() && seconds("inf").is_err());
    }
}
