//! Runs a language's tool: what it says goes to the progress, its last lines into the error.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::UNIX_EPOCH;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::Progress;
use super::hint::hint;
use crate::build_error::BuildError;

/// The last lines of a tool that go into an error.
const SAID_MAX: usize = 12;
/// The longest part of such a line, in characters.
const LINE_MAX: usize = 400;

/// A tool's run.
#[derive(Clone, Debug)]
pub(super) struct ToolRun {
    /// The program.
    pub(super) program: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<OsString>,
    /// Where it runs.
    pub(super) folder: PathBuf,
    /// Variables beside those of this process.
    pub(super) environment: Vec<(&'static str, OsString)>,
    /// What cannot be done if it fails: "the packages of requirements.txt cannot be installed".
    pub(super) failure: String,
    /// What helps if its words do not tell.
    pub(super) otherwise: &'static str,
    /// Which lines of its standard output are an answer. They are not shown.
    pub(super) answers: fn(&str) -> bool,
}

impl ToolRun {
    /// `program` in `folder` with these arguments.
    pub(super) fn new(program: &Path, folder: &Path, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            folder: folder.to_owned(),
            environment: Vec::new(),
            failure: String::new(),
            otherwise: "",
            answers: |_| false,
        }
    }

    /// Runs it to its end. Gives the lines of its answer.
    ///
    /// # Errors
    /// If it cannot be started, or fails.
    pub(super) async fn run(self, progress: &mut dyn Progress) -> Result<Vec<String>, BuildError> {
        let failed = |source| BuildError::io("starting", &self.program)(source);
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(&self.folder)
            .envs(self.environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (mut answer, mut said) = (Vec::new(), LastLines::default());
        if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
            let (mut out, mut err) = (BufReader::new(out).split(b'\n'), BufReader::new(err).split(b'\n'));
            let (mut is_out_open, mut is_err_open) = (true, true);
            while is_out_open || is_err_open {
                let (piece, is_out) = tokio::select! {
                    piece = out.next_segment(), if is_out_open => (piece, true),
                    piece = err.next_segment(), if is_err_open => (piece, false),
                };
                match piece.map_err(failed)? {
                    None if is_out => is_out_open = false,
                    None => is_err_open = false,
                    Some(piece) => {
                        let line = last_state(&piece);
                        if is_out && (self.answers)(&line) {
                            answer.push(line);
                        } else if !line.is_empty() {
                            progress.tool(&line);
                            said.push(line.chars().take(LINE_MAX).collect(), is_out);
                        }
                    }
                }
            }
        }
        let status = child.wait().await.map_err(failed)?;
        if status.success() {
            return Ok(answer);
        }
        let said = said.into_lines();
        let tool = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hint = hint(&said, self.otherwise);
        Err(BuildError::Failed { what: self.failure, tool, status, said, hint })
    }
}

/// The last lines of standard error and of standard output, with their numbers: a flood of one leaves half of the room to the
/// other.
#[derive(Default)]
struct LastLines {
    lines: [VecDeque<(usize, String)>; 2],
    number: usize,
}

impl LastLines {
    fn push(&mut self, line: String, is_out: bool) {
        self.number = self.number.saturating_add(1);
        self.lines[usize::from(is_out)].push_back((self.number, line));
        let [err, out] = &mut self.lines;
        if err.len().saturating_add(out.len()) > SAID_MAX {
            if err.len() > out.len() { err } else { out }.pop_front();
        }
    }

    /// The lines in the order in which they were said.
    fn into_lines(self) -> Vec<String> {
        let mut lines: Vec<_> = self.lines.into_iter().flatten().collect();
        lines.sort_unstable();
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

/// A line without colours, as a terminal would show it at last: a bar of progress is written over and over.
fn last_state(piece: &[u8]) -> String {
    let text = String::from_utf8_lossy(piece);
    let line = text.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
            continue;
        }
        // ESC [ parameters letter
        if characters.next() == Some('[') {
            for character in characters.by_ref() {
                if character.is_ascii_alphabetic() {
                    break;
                }
            }
        }
    }
    plain.trim_end().to_owned()
}

/// The program called `name` in `PATH`.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

/// True if `file` may be executed.
pub(super) fn is_program(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

/// What changes when another version of `program` is installed: its file, its size and when it was written.
pub(super) fn identity(program: &Path) -> String {
    let file = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let metadata = file.metadata().ok();
    let written = metadata.as_ref().and_then(|metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let size = metadata.map(|metadata| metadata.len()).unwrap_or_default();
    format!("{}:{size}:{}", file.display(), written.unwrap_or_default().as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Progress for Heard {
        fn step(&mut self, _text: &str) {}

        fn tool(&mut self, line: &str) {
            self.0.push(line.to_owned());
        }
    }

    fn shell(script: &str) -> ToolRun {
        ToolRun {
            failure: "it cannot be made".to_owned(),
            ..ToolRun::new(Path::new("/bin/sh"), Path::new("/"), ["-c", script])
        }
    }

    #[tokio::test]
    async fn what_a_tool_says_is_heard_and_its_answer_kept_apart() {
        let mut heard = Heard::default();
        let script = r#"printf 'one\n{"a": 1}\n\033[1mtwo\033[0m\n10%%\r100%%\n'; echo "$WORD" >&2"#;
        let mut run = shell(script);
        run.answers = |line| line.starts_with('{');
        run.environment = vec![("WORD", "three".into())];
        assert_eq!(run.run(&mut heard).await.unwrap(), [r#"{"a": 1}"#]);
        heard.0.sort();
        assert_eq!(heard.0, ["100%", "one", "three", "two"]);
    }

    #[tokio::test]
    async fn a_failing_tool_is_quoted_with_what_helps() {
        let script = "for n in $(seq 100); do echo line $n; done; echo 'dial tcp: no such host' >&2; exit 3";
        let error = shell(script).run(&mut Heard::default()).await.unwrap_err().to_string();
        assert!(error.starts_with("it cannot be made: sh ended with exit status: 3\n  "), "{error}");
        assert!(error.contains("\n  line 100") && !error.contains("line 50\n") && error.contains("online"), "{error}");
        let absent = ToolRun::new(Path::new("/nowhere/tool"), Path::new("/"), ["x"]);
        let error = absent.run(&mut Heard::default()).await.unwrap_err().to_string();
        assert!(error.starts_with("starting /nowhere/tool: No such file"), "{error}");
    }

    #[test]
    fn a_flood_on_one_stream_leaves_the_last_lines_of_the_other() {
        let mut said = LastLines::default();
        let line = |n: usize| format!("line {n}");
        (0..SAID_MAX).for_each(|n| said.push(line(n), false));
        (SAID_MAX..4 * SAID_MAX).for_each(|n| said.push(line(n), true));
        let half = SAID_MAX / 2;
        let kept: Vec<String> = (half..SAID_MAX).chain(4 * SAID_MAX - half..4 * SAID_MAX).map(line).collect();
        assert_eq!(said.into_lines(), kept);
    }

    #[test]
    fn a_program_is_known_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("tool");
        std::fs::write(&program, "1").unwrap();
        let first = identity(&program);
        assert_eq!(first, identity(&program));
        std::fs::write(&program, "12").unwrap();
        assert_ne!(first, identity(&program));
        assert!(in_path("sh").is_some() && !is_program(&program));
    }
}
