//! Makes foreign text (logs, object keys, error messages) safe for a terminal: it cannot move the cursor, set the title or
//! hide text. Pipes and files get the text unchanged.

use std::borrow::Cow;
use std::io::IsTerminal;

/// `text`, with control characters written out if its `stream` is a terminal. Tabs stay.
pub(crate) fn shown<'a>(stream: &impl IsTerminal, text: &'a str) -> Cow<'a, str> {
    if stream.is_terminal() { escaped(text) } else { Cow::Borrowed(text) }
}

/// The lines of `text`. A carriage return ends one, too: `awslambdaric` joins the lines of a traceback by it.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// `text` in `count` characters at most; the last is an ellipsis if text is left out.
pub(crate) fn shortened(text: &str, count: usize) -> Cow<'_, str> {
    if text.chars().count() <= count {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(count.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

fn escaped(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\t';
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_written_out() {
        assert_eq!(escaped("\u{1b}[2J\u{1b}]0;title\u{7}a\u{9b}1m\tb"), "\\u{1b}[2J\\u{1b}]0;title\\u{7}a\\u{9b}1m\tb");
        assert!(matches!(escaped("ünveiled\ttext"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_carriage_return_ends_a_line() {
        let all: Vec<_> = lines("[ERROR] no\rTraceback:\r  File\r\nend\n\nlast").collect();
        assert_eq!(all, ["[ERROR] no", "Traceback:", "  File", "end", "", "last"]);
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde…");
        assert_eq!(shortened("äöüß", 3), "äö…");
    }
}
