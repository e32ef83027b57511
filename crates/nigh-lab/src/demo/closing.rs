//! What a terminal shows below the table: the conditions, the picture, the sentence, and the commands to go on with. Pure.

use super::picture;
use super::report::{DemoReport, comparisons};
use super::sentence::{explanations, sentence};
use crate::instrument::template::fill;

/// The columns of text.
const WIDTH: usize = 80;
/// The commands to go on with, each with what it is for.
const NEXT: [(&str, &str); 3] = [
    ("make install", "puts nigh and its Python on your PATH"),
    ("nigh up", "starts a node; Ctrl-C ends it"),
    ("nigh init hello; cd hello; nigh dev", "in another terminal: your own function"),
];

/// What a figure is, as sentences.
const CONDITIONS: [&str; 4] = [
    "Each function runs the same code on the same inputs, in turn directly against the store and through Nigh, {clients} at a \
     time; both sides are measured inside the function by the same instrument. Store: {store}; {failed} failed invocations.",
    "A time is the sum of the medians of reading, work and writing of each input, as a mean over the inputs; objects are reading \
     and writing. The ratio is that of the times, its interval by bootstrap of pairs (95 %, 1000 resamples). CPU is the ratio \
     of the processor time of the functions' work, median over the inputs.",
    "The first round, in which all is cold, is not in these times; it took {first_round.direct_s:.1} s directly and \
     {first_round.nigh_s:.1} s through Nigh.",
    "Nigh acknowledges a write when its journal is synced, and pushes it to the store after that: between the runs, not in their \
     times, and counted in Nigh's processor time.",
];

impl DemoReport {
    /// The sentences on what the figures are.
    pub(super) fn conditions(&self) -> Vec<String> {
        CONDITIONS.iter().map(|template| fill(template, self)).collect()
    }

    /// All below the table.
    pub(super) fn text(&self) -> String {
        let mut paragraphs = self.conditions();
        paragraphs.push(format!("{}.", self.machine));
        let mut lines: Vec<String> = paragraphs.iter().flat_map(|paragraph| wrapped(paragraph, WIDTH)).collect();
        lines.push(String::new());
        lines.push(picture::text(&comparisons(&self.summaries)));
        lines.extend(wrapped(&sentence(self), WIDTH));
        lines.extend(explanations(self).iter().flat_map(|one| wrapped(one, WIDTH)));
        if let Some(page) = &self.page {
            lines.extend([String::new(), format!("The picture as a page: {}", page.display())]);
        }
        let width = NEXT.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
        lines.extend([String::new(), "Nothing is left running. Go on with:".to_owned()]);
        lines.extend(NEXT.iter().map(|(command, purpose)| format!("  {command:width$}  # {purpose}")));
        lines.join("\n")
    }
}

/// `text` in lines of at most `width` columns; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::{made_up, report};

    #[test]
    fn the_end_names_the_statistic_shows_the_picture_and_the_sentence_and_then_three_commands() {
        let slower = made_up("resize", [20.0, 900.0, 30.0], [5.0, 990.0, 5.0], [1.01, 1.09]);
        let faster = made_up("thumbnail", [20.0, 10.0, 20.0], [2.0, 9.0, 1.5], [0.2, 0.3]);
        let text = report([slower, faster].concat()).text();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            "Each function runs",
            "A time is the sum",
            "The first round",
            "█ reading objects",
            "Through Nigh thumbnail runs",
            "resize took 1.05 times as long",
            "demo.html",
            "Nothing is left running",
            "make install",
            "nigh up ",
            "nigh init hello",
        ];
        let places: Vec<usize> = order.iter().map(|part| place(part)).collect();
        assert!(places.is_sorted(), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn words_are_kept_whole() {
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a longest b", 3), ["a", "longest", "b"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
