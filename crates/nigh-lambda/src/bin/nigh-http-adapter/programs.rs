//! OpenWhisk's native actions: the archive's `exec` is run for each invocation, as OpenWhisk's docker skeleton does.
//!
//! The program gets the input as its only argument, if it is not too long for the kernel, and always on its standard input.
//! The last line that it prints is its answer; the lines before are its log.

use std::process::Stdio;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::{ANSWER_BYTES_MAX, Failure, RuntimeApi, variable};

/// The longest input that is an argument: Linux allows 128 KiB (`MAX_ARG_STRLEN`).
const ARGUMENT_BYTES_MAX: usize = 120 << 10;
/// The bytes of its output that are read at once.
const READ_BYTES: usize = 64 << 10;

/// The outcome of a program.
enum Outcome {
    Answer(Bytes),
    /// It printed nothing.
    Silent(String),
}

/// Serves invocations until the Runtime API ends.
pub(super) async fn serve(api: &RuntimeApi) -> Result<(), Failure> {
    let program = format!("{}/exec", variable("LAMBDA_TASK_ROOT", "/var/task"));
    if let Err(why) = check(&program) {
        let why = format!("The action failed during initialization: {why}");
        api.init_error("Action.Init", &why).await?;
        return Err(why.into());
    }
    loop {
        let next = api.next().await?;
        match run(&program, &next.id, &next.deadline_ms, &next.payload).await {
            Ok(Outcome::Answer(answer)) => api.answer(&next.id, answer).await?,
            Ok(Outcome::Silent(how)) => api.error(&next.id, "Runtime.ExitError", &how).await?,
            Err(error) => api.error(&next.id, "Action.Exec", &format!("{program}: {error}")).await?,
        }
    }
}

fn check(program: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let found = std::fs::metadata(program).map_err(|_| "its archive has no program exec at its root.".to_owned())?;
    if found.permissions().mode() & 0o111 == 0 {
        return Err("exec is no program: pack it with its execute permission (chmod +x exec).".to_owned());
    }
    Ok(())
}

async fn run(program: &str, id: &str, deadline_ms: &str, input: &Bytes) -> Result<Outcome, Failure> {
    let activation = id.replace('-', "");
    let mut command = Command::new(program);
    if input.len() <= ARGUMENT_BYTES_MAX {
        command.arg(std::str::from_utf8(input)?);
    }
    let mut child = command
        .env("__OW_ACTIVATION_ID", &activation)
        .env("__OW_TRANSACTION_ID", &activation)
        .env("__OW_DEADLINE", deadline_ms)
        .current_dir(variable("LAMBDA_TASK_ROOT", "/var/task"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program may close its input without reading it.
            let _ = stdin.write_all(input).await;
        }
    };
    let listen = async {
        match stdout {
            Some(stdout) => last_line(stdout).await,
            None => Ok(Vec::new()),
        }
    };
    let ((), last) = tokio::join!(feed, listen);
    let status = child.wait().await?;
    let last = last?;
    if last.is_empty() {
        return Ok(Outcome::Silent(format!("exec printed nothing and ended: {status}")));
    }
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&last).is_ok();
    if is_json {
        return Ok(Outcome::Answer(last.into()));
    }
    let text = serde_json::Value::String(String::from_utf8_lossy(&last).into_owned());
    Ok(Outcome::Answer(text.to_string().into()))
}

/// Copies all lines but the last to the log, and returns the last.
async fn last_line(mut from: impl tokio::io::AsyncRead + Unpin) -> Result<Vec<u8>, Failure> {
    let mut out = tokio::io::stdout();
    let (mut pending, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        pending.extend_from_slice(&buffer[..read]);
        // Whatever ends before the last line that has begun is not the last.
        let body = pending.strip_suffix(b"\n").unwrap_or(&pending);
        if let Some(end) = body.iter().rposition(|octet| *octet == b'\n') {
            out.write_all(&pending[..=end]).await?;
            pending.drain(..=end);
        }
        if pending.len() > ANSWER_BYTES_MAX {
            return Err(format!("the last line has more than {ANSWER_BYTES_MAX} bytes").into());
        }
    }
    out.flush().await?;
    while pending.last().is_some_and(u8::is_ascii_whitespace) {
        pending.pop();
    }
    Ok(pending)
}
