//! Asks before something is removed for good.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::error::CliError;

/// Asks on the terminal whether to go on; with `yes` it goes on at once. Without a terminal nobody can answer.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(CliError::Usage(format!("{question} Nobody can answer here: add --yes")));
    }
    let mut answer = String::new();
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ").and_then(|()| err.flush()).map_err(CliError::Output)?;
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|source| CliError::Local { what: "reading the answer".to_owned(), source })?;
    if is_yes(&answer) { Ok(()) } else { Err(CliError::Failed("nothing was removed".to_owned())) }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        assert!(is_yes("y\n") && is_yes("Yes\n") && is_yes(" YES "));
        assert!(!is_yes("") && !is_yes("\n") && !is_yes("n\n") && !is_yes("yesterday"));
    }
}
