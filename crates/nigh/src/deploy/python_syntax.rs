//! Whether Python can read the module with the handler. A module that it cannot read is deployed all the same; without a
//! warning the first invocation would be the one to tell.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nigh_node::config::PythonChoice;
use nigh_node::python::interpreters;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Compiles its standard input, and prints the line and the message of a syntax error.
const PROGRAM: &str = "\
import sys
try:
    compile(sys.stdin.buffer.read(), 'module', 'exec', dont_inherit=True)
except SyntaxError as error:
    print(error.lineno or 1, error.msg)
";
/// How long the interpreter may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A module of a function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PythonModule {
    /// Its file: `main.py`.
    pub(super) file: String,
    pub(super) source: String,
    /// The version of the Python that runs it: 11 of 3.11.
    pub(super) minor: u8,
}

impl PythonModule {
    /// Its first syntax error, as `main.py:11: syntax error: invalid syntax`. None if it has none, or if no Python of its
    /// version is here to tell.
    pub(super) async fn syntax_error(&self, choice: &PythonChoice) -> Option<String> {
        let interpreter = interpreters(choice, self.minor).await.into_iter().next()?;
        let said = tokio::time::timeout(PATIENCE, compiled(&interpreter, &self.source)).await.ok()?.ok()?;
        self.words(&String::from_utf8(said).ok()?)
    }

    /// The words for what `PROGRAM` printed.
    fn words(&self, said: &str) -> Option<String> {
        let (line, message) = said.trim_end().split_once(' ')?;
        let line: u64 = line.parse().ok()?;
        Some(format!("{}:{line}: syntax error: {message}", self.file))
    }
}

/// What `PROGRAM` prints about `source`.
async fn compiled(interpreter: &Path, source: &str) -> io::Result<Vec<u8>> {
    let mut child = Command::new(interpreter)
        // Nothing of this machine's packages and variables is needed, and without them it starts faster.
        .args(["-I", "-S", "-X", "utf8", "-W", "ignore", "-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(source.as_bytes()).await?;
    }
    Ok(child.wait_with_output().await?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_is_told_with_its_file_and_line() {
        let module = PythonModule { file: "pkg/main.py".to_owned(), source: String::new(), minor: 11 };
        let words = module.words("11 '(' was never closed\n");
        assert_eq!(words.as_deref(), Some("pkg/main.py:11: syntax error: '(' was never closed"));
        for nothing in ["", "\n", "11", "x invalid syntax"] {
            assert_eq!(module.words(nothing), None, "{nothing:?}");
        }
    }
}
