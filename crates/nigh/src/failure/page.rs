//! Lines of text in a given width: pure.

/// The least width that text is wrapped to.
const WIDTH_MIN: usize = 40;
/// Columns before a line that belongs to the headline.
const INDENT: usize = 2;

/// What is to be printed, line by line.
pub(super) struct Page {
    width: usize,
    lines: Vec<String>,
}

impl Page {
    pub(super) fn new(width: usize) -> Self {
        Self { width: width.max(WIDTH_MIN), lines: Vec::new() }
    }

    /// A line of the headline, wrapped.
    pub(super) fn head(&mut self, text: &str) {
        self.wrapped(0, 2 * INDENT, text);
    }

    /// An indented paragraph. Its further lines stand below its text after `label`.
    pub(super) fn paragraph(&mut self, label: &str, text: &str) {
        let label_width = if label.is_empty() { 0 } else { label.chars().count() + 1 };
        let text = if label.is_empty() { text.to_owned() } else { format!("{label} {text}") };
        self.wrapped(INDENT, INDENT + label_width, &text);
    }

    /// An indented line, cut at the width.
    pub(super) fn line(&mut self, text: &str) {
        let room = self.width - INDENT;
        self.lines.push(format!("{:INDENT$}{}", "", crate::printable::shortened(text.trim_end(), room)));
    }

    /// An indented line as it is, however long.
    pub(super) fn whole_line(&mut self, text: &str) {
        self.lines.push(format!("{:INDENT$}{}", "", text.trim_end()));
    }

    fn wrapped(&mut self, indent: usize, hanging: usize, text: &str) {
        let mut line = " ".repeat(indent);
        let mut is_empty = true;
        for word in words(text) {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > self.width {
                self.lines.push(std::mem::replace(&mut line, " ".repeat(hanging)));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&word);
            is_empty = false;
        }
        self.lines.push(line);
    }

    pub(super) fn text(self) -> String {
        self.lines.join("\n")
    }
}

/// The words of `text`; a command in backticks is one, so that it can be copied.
fn words(text: &str) -> Vec<String> {
    if text.matches('`').count() % 2 == 1 {
        return text.split_whitespace().map(str::to_owned).collect();
    }
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| is_open) {
            Some(command) => {
                command.push(' ');
                command.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
        is_open ^= word.matches('`').count() % 2 == 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words_below_its_label() {
        let mut page = Page::new(40);
        page.head("KeyError: a message that does not fit into forty columns");
        page.paragraph("help:", "give it more time, or make what it waits for faster");
        page.line(&"x".repeat(50));
        let text = page.text();
        assert_eq!(
            text,
            "KeyError: a message that does not fit\n    into forty columns\n  help: give it more time, or make what\n        \
             it waits for faster\n  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn a_command_is_not_broken() {
        let mut page = Page::new(40);
        page.paragraph("help:", "give it more: `nigh deploy hello --memory 2MiB`; else");
        assert_eq!(page.text(), "  help: give it more:\n        `nigh deploy hello --memory 2MiB`;\n        else");
    }

    #[test]
    fn a_word_longer_than_the_width_has_a_line_alone() {
        let mut page = Page::new(40);
        let long = "y".repeat(60);
        page.head(&format!("a {long} b"));
        assert_eq!(page.text(), format!("a\n    {long}\n    b"));
    }
}
