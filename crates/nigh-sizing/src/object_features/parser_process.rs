//! One process that reads headers of one namespace's objects, and can do nothing else.
//!
//! The program `nigh-features` isolates itself before it reads a byte of an object (its own documentation says how).
//! Its cost is bounded from here, too: after a timeout or an invalid answer the process is killed. A process ends when
//! its standard input ends, so none outlives the node.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_learn::media::ObjectHead;
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::frames::{ANSWER_MAX, FrameError, LENGTH_BYTES, ParserMessage, question, said_of};

/// The program's name, beside Nigh's own.
const PROGRAM: &str = "nigh-features";
/// The time that a process has to start, on a busy machine too.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// The time of a look; a header takes a millisecond.
const LOOK_PATIENCE: Duration = Duration::from_millis(500);
/// The looks after which a process is replaced, because its processor time is bounded.
const LOOKS_MAX: u32 = 1000;

/// The program, and as whom it runs.
#[derive(Clone, Debug)]
pub struct ParserProgram {
    /// Where it is.
    pub path: PathBuf,
    /// The user that it becomes, where Nigh is root.
    pub user: Option<u32>,
}

/// Why a process gives no answer.
#[derive(Debug, Error)]
pub enum ParserError {
    /// The process does not start.
    #[error(
        "{program}: {reason}; `make install` puts {PROGRAM} beside nigh, or set memory.features = \"off\" to run without it"
    )]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason, or its own.
        reason: String,
    },
    /// The look took too long.
    #[error("the parser did not answer within {LOOK_PATIENCE:?}")]
    Slow,
    /// The process has ended, or its pipe is broken.
    #[error("the parser process has ended: {0}")]
    Ended(#[from] io::Error),
    /// The answer is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The parser gave up.
    #[error("the parser failed: {0}")]
    Parser(String),
}

impl ParserError {
    /// Whether the process can be used again.
    pub(super) const fn spares_the_process(&self) -> bool {
        matches!(self, Self::Parser(_) | Self::Frame(FrameError::Large(_)))
    }
}

/// The result of `nigh-features check`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IsolationCheck {
    /// The forbidden actions that succeeded.
    open: Vec<String>,
}

/// A process that waits for questions. It is killed when this is dropped.
#[derive(Debug)]
pub struct ParserProcess {
    child: Child,
    questions: ChildStdin,
    answers: ChildStdout,
    looks: u32,
}

impl ParserProgram {
    /// The program that is installed with the running one.
    #[must_use]
    pub fn installed() -> Option<PathBuf> {
        let this = std::env::current_exe().ok()?;
        nigh_terms::companion_programs(&this, PROGRAM).find(|program| program.is_file())
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg(word)
            .args(self.user.map(|user| user.to_string()))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn failed(&self, reason: impl ToString) -> ParserError {
        ParserError::Start { program: self.path.clone(), reason: reason.to_string() }
    }

    /// Runs the program's check: it isolates itself and tries forbidden actions.
    ///
    /// # Errors
    /// `Start` if it does not run here, cannot raise them, or something stays open.
    #[boxed]
    pub async fn check(&self) -> Result<(), ParserError> {
        let child = self.command("check").spawn().map_err(|error| self.failed(error))?;
        let output = timeout(START_PATIENCE, child.wait_with_output()).await;
        let output = output.map_err(|_| self.failed("it does not answer"))?.map_err(|error| self.failed(error))?;
        let said: IsolationCheck = match serde_json::from_slice(&output.stdout) {
            Ok(said) => said,
            Err(_) => {
                let words = String::from_utf8_lossy(&output.stdout).chars().take(300).collect::<String>();
                return Err(self.failed(format!("{}: {words}", output.status)));
            }
        };
        if said.open.is_empty() {
            return Ok(());
        }
        Err(self.failed(format!("behind its walls it can still {}", said.open.join(", "))))
    }

    /// Starts a process and waits until it is isolated.
    ///
    /// # Errors
    /// `Start`, and why.
    #[boxed]
    pub async fn start(&self) -> Result<ParserProcess, ParserError> {
        let mut child = self.command("serve").spawn().map_err(|error| self.failed(error))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(self.failed("it has no pipes"));
        };
        let mut process = ParserProcess { child, questions, answers, looks: 0 };
        match timeout(START_PATIENCE, process.hear()).await {
            Ok(Ok(ParserMessage::Ready(true))) => Ok(process),
            Ok(Ok(ParserMessage::Failed(reason))) => Err(self.failed(reason)),
            Ok(Ok(other)) => Err(self.failed(format!("it begins with {other:?}"))),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_) => Err(self.failed("its walls do not stand in time")),
        }
    }
}

impl ParserProcess {
    async fn hear(&mut self) -> Result<ParserMessage, ParserError> {
        let mut length = [0; LENGTH_BYTES];
        self.answers.read_exact(&mut length).await?;
        let length = u32::from_le_bytes(length) as usize;
        if length > ANSWER_MAX {
            return Err(FrameError::Answer(format!("it has {length} bytes")).into());
        }
        let mut frame = vec![0; length];
        self.answers.read_exact(&mut frame).await?;
        Ok(said_of(&frame)?)
    }

    /// Its process id, while it lives.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Whether the process has made all its looks.
    #[must_use]
    pub const fn is_worn(&self) -> bool {
        self.looks >= LOOKS_MAX
    }

    /// Asks the process to look at an object. After some errors it must not be used again (`spares_the_process`).
    ///
    /// # Errors
    /// Why there is no answer.
    #[boxed]
    pub async fn look(&mut self, object: &ObjectHead<'_>) -> Result<ParserMessage, ParserError> {
        let frame = question(object)?;
        self.looks += 1;
        let asked = async {
            self.questions.write_all(&frame).await?;
            self.questions.flush().await?;
            self.hear().await
        };
        match timeout(LOOK_PATIENCE, asked).await {
            Ok(Ok(ParserMessage::Failed(reason))) => Err(ParserError::Parser(reason)),
            Ok(said) => said,
            Err(_) => Err(ParserError::Slow),
        }
    }
}
