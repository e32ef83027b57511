//! `nigh-features`: reads headers of one namespace's objects, and can do nothing else. Started by Nigh, never by hand.
//!
//! It isolates itself before it reads a byte of an object (`walls`): it can read its standard input, write to its
//! standard output, and compute, in bounded memory and for a bounded time. Its findings are words and numbers
//! (`frames`), which the recorder checks. It ends with its standard input.
//!
//! `nigh-features serve [USER]` answers questions. `nigh-features check [USER]` tries forbidden actions and reports
//! those that succeeded.

mod walls;

use std::io::{self, Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use nigh_sizing::object_features::frames::{LENGTH_BYTES, ParserMessage, QUESTION_MAX, answer_to, frame_of};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (word, user) = (arguments.next(), arguments.next().and_then(|user| user.parse().ok()));
    // A panic is reported in the answer; nobody reads the panic's message here.
    std::panic::set_hook(Box::new(|_| {}));
    let raised = walls::raise(user);
    let done = match (word.as_deref(), raised) {
        (Some("check"), Ok(())) => say(&walls::open().to_string()),
        (Some("check"), Err(reason)) => say(&reason).and(Err(io::ErrorKind::PermissionDenied.into())),
        (Some("serve"), Ok(())) => tell(&ParserMessage::Ready(true)).and_then(|()| serve()),
        (Some("serve"), Err(reason)) => tell(&ParserMessage::Failed(reason)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(words: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(words.as_bytes())?;
    out.flush()
}

fn tell(said: &ParserMessage) -> io::Result<()> {
    let frame = frame_of(said).map_err(io::Error::other)?;
    let mut out = io::stdout().lock();
    out.write_all(&frame)?;
    out.flush()
}

/// Answers until the input ends.
fn serve() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut question = Vec::new();
    loop {
        let mut length = [0; LENGTH_BYTES];
        match input.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > QUESTION_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        question.resize(length, 0);
        input.read_exact(&mut question)?;
        // A look leaves nothing behind except allocated memory.
        let said = catch_unwind(AssertUnwindSafe(|| answer_to(&question)));
        tell(&match said {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => ParserMessage::Failed(error.to_string()),
            Err(_) => ParserMessage::Failed("a parser panicked".to_owned()),
        })?;
    }
}
