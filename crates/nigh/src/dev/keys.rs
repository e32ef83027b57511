//! Single keys from a terminal, without Enter and unseen. Ctrl-C stays a signal, and output is as ever.

use std::io::{self, stdin};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// How long the reader waits for a key before it looks whether it may still read: 50 ms.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How long the reader and the editor wait for each other at a time.
const PAUSE: Duration = Duration::from_millis(5);

/// The terminal of standard input, which gives single keys. Dropped, it is as it was.
pub(crate) struct KeyTerminal {
    before: Termios,
    reader: Arc<Reader>,
}

/// Who may read standard input.
#[derive(Default)]
struct Reader {
    /// True while an editor has the terminal.
    is_paused: AtomicBool,
    /// True while the reader may take a key: it looks at `is_paused` after it has set this.
    is_reading: AtomicBool,
}

impl KeyTerminal {
    /// Makes the terminal give single keys, and calls `press` with each, on a thread of its own, until it returns false.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn open(press: impl Fn(char) -> bool + Send + 'static) -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        single_keys(&before)?;
        let terminal = Self { before, reader: Arc::default() };
        let reader = Arc::clone(&terminal.reader);
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&reader, &press))?;
        Ok(terminal)
    }

    /// Runs `editor`, a shell command, on `file`, with the terminal as it was before.
    ///
    /// # Errors
    /// If it cannot be run.
    pub(super) async fn edit(&self, editor: &str, file: &Path) -> io::Result<ExitStatus> {
        self.reader.is_paused.store(true, Ordering::SeqCst);
        while self.reader.is_reading.load(Ordering::SeqCst) {
            tokio::time::sleep(PAUSE).await;
        }
        tcsetattr(stdin(), OptionalActions::Drain, &self.before)?;
        // As git runs it: the command may have arguments.
        let command = format!("{editor} \"$1\"");
        let ended = tokio::process::Command::new("sh").args(["-c", &command, "sh"]).arg(file).status().await;
        let again = single_keys(&self.before);
        self.reader.is_paused.store(false, Ordering::SeqCst);
        again?;
        ended
    }
}

impl Drop for KeyTerminal {
    fn drop(&mut self) {
        // A terminal that is gone cannot be set back.
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Keys come at once and are not shown.
fn single_keys(before: &Termios) -> io::Result<()> {
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    Ok(tcsetattr(stdin(), OptionalActions::Drain, &modes)?)
}

fn read_keys(reader: &Reader, press: &dyn Fn(char) -> bool) {
    loop {
        reader.is_reading.store(true, Ordering::SeqCst);
        let key = if reader.is_paused.load(Ordering::SeqCst) { Ok(None) } else { next_key() };
        reader.is_reading.store(false, Ordering::SeqCst);
        match key {
            Ok(Some(key)) if !press(key) => return,
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(PAUSE),
            // The terminal is gone; SIGHUP ends the session.
            Err(_) => return,
        }
    }
}

/// The next key; none if there is none for a while.
fn next_key() -> io::Result<Option<char>> {
    let input = stdin();
    let mut ready = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut ready, Some(&WAIT)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        polled => {
            polled?;
        }
    }
    let mut byte = [0_u8];
    // Not by the standard library, which would read ahead.
    match rustix::io::read(&input, &mut byte)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(Some(char::from(byte[0]))),
    }
}
