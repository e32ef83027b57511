//! Lines that a vendor's runtime client prints about itself, which are no part of a function's log. Pure.
//!
//! A line is left out only if all of it is the client's: its own text word for word, in the client's form, printed while
//! no invocation runs. A line of another version of the client, or in another form, stays.

/// What `awslambdaric` says beside each failed initialisation. It speaks of updates of AWS's runtimes and of a log line
/// that Nigh does not have; the error itself is the next line.
pub(crate) const PYTHON_WARNING: &str = "LAMBDA_WARNING: Unhandled exception. The most likely cause is an issue in the function \
    code. However, in rare cases, a Lambda runtime update can cause unexpected function behavior. For functions using \
    managed runtimes, runtime updates can be triggered by a function change, or can be applied automatically. To \
    determine if the runtime has been updated, check the runtime version in the INIT_START log entry. If this error \
    correlates with a change in the runtime version, you may be able to mitigate this error by temporarily rolling back \
    to the previous runtime version. For more information, see \
    https://docs.aws.amazon.com/lambda/latest/dg/runtimes-update.html";

/// True for a line of `awslambdaric` about itself: level, date, no invocation, its text.
pub(crate) fn is_of_python_client(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let Some((head, text)) = line.trim_end_matches('\r').rsplit_once('\t') else { return false };
    let mut fields = head.split('\t');
    let (level, date, invocation) = (fields.next(), fields.next(), fields.next());
    text == PYTHON_WARNING
        && level == Some("[WARNING]")
        && date.is_some_and(|date| date.ends_with('Z'))
        && invocation == Some("")
        && fields.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_warning_is_told_from_everything_that_a_function_prints() {
        let line = |level: &str, invocation: &str, text: &str| {
            format!("[{level}]\t2026-11-26T10:00:00.000Z\t{invocation}\t{text}\r")
        };
        assert!(is_of_python_client(line("WARNING", "", PYTHON_WARNING).as_bytes()));
        let more = format!("{PYTHON_WARNING} and more");
        for other in [
            line("ERROR", "", PYTHON_WARNING),
            line("WARNING", "an invocation", PYTHON_WARNING),
            line("WARNING", "", "LAMBDA_WARNING: mine"),
            line("WARNING", "", &more),
            PYTHON_WARNING.to_owned(),
            String::new(),
        ] {
            assert!(!is_of_python_client(other.as_bytes()), "{other}");
        }
        assert!(!is_of_python_client(b"\xff\t\xfe"));
    }

    #[test]
    fn the_text_is_one_line_with_single_spaces() {
        assert!(!PYTHON_WARNING.contains("  ") && !PYTHON_WARNING.contains('\n'));
    }
}
