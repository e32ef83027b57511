//! Tables for people: columns side by side, as wide as the terminal.
//!
//! Where the width is unknown (a pipe, a file) a table has all its columns, whole, for scripts and for `less -S`. Where it
//! is known, the table fits: columns are shortened, but never the first; if that is not enough, the less important ones are
//! left out. A table without headings is a list of names and values, and its values are wrapped. Pure: the width is an
//! argument.

use unicode_width::UnicodeWidthChar;

/// Columns between two columns.
const GAP: usize = 2;
/// A column is not shortened below this width.
const SHORTENED_LEAST: usize = 12;
/// A value is not wrapped to fewer columns.
const WRAPPED_LEAST: usize = 24;
/// How a terminal's control sequence begins; those in cells set colours and end with `m`.
const ESCAPE: &str = "\u{1b}[";

/// Rows of cells, with or without headings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    less_important: Vec<&'static str>,
}

impl Table {
    /// A table with these headings, or a list of names and values.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(|heading| (*heading).to_owned()).collect(), ..Self::default() }
    }

    /// Names the columns that are left out first where not all have room, in this order. Then follow the last ones.
    pub(crate) fn less_important(mut self, headings: &[&'static str]) -> Self {
        self.less_important = headings.to_vec();
        self
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn add_row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// The table in `width` columns; whole if the width is unknown.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        match width {
            _ if self.headings.is_empty() => self.wrapped(width.unwrap_or(usize::MAX)),
            Some(width) => self.laid_out(&self.fitting(width)),
            None => self.laid_out(&self.natural().into_iter().enumerate().collect::<Vec<_>>()),
        }
    }

    /// The width of each column.
    fn natural(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            widths.resize(row.len().max(widths.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = visible_width(&cell.replace('\n', " ")).max(*width);
            }
        }
        widths
    }

    /// The columns that fit into `width`, each with its width.
    fn fitting(&self, width: usize) -> Vec<(usize, usize)> {
        let mut columns: Vec<(usize, usize)> = self.natural().into_iter().enumerate().collect();
        let heading = |column: usize| self.headings.get(column).map_or("", String::as_str);
        let least = |&(column, width): &(usize, usize)| {
            if column == 0 { width } else { width.min(SHORTENED_LEAST.max(visible_width(heading(column)))) }
        };
        let mut less_important = self.less_important.iter();
        while columns.len() > 1 && total(columns.iter().map(least)) > width {
            match less_important.next() {
                Some(name) => columns.retain(|(column, _)| *column == 0 || heading(*column) != *name),
                None => drop(columns.pop()),
            }
        }
        while total(columns.iter().map(|(_, width)| *width)) > width {
            let shortened = columns.iter_mut().filter(|column| column.1 > least(column)).max_by_key(|column| column.1);
            let Some((_, widest)) = shortened else { break };
            *widest -= 1;
        }
        columns
    }

    /// The lines of the table, whose `columns` have these widths.
    fn laid_out(&self, columns: &[(usize, usize)]) -> String {
        let headings = std::iter::once(&self.headings).filter(|headings| !headings.is_empty());
        let lines = headings.chain(&self.rows).map(|row| {
            let mut line = String::new();
            for (place, (column, width)) in columns.iter().enumerate() {
                let cell = row.get(*column).map_or("", String::as_str).replace('\n', " ");
                let cell = if visible_width(&cell) > *width { shortened(&cell, *width) } else { cell };
                line += &cell;
                if place + 1 < columns.len() {
                    line += &" ".repeat(width.saturating_sub(visible_width(&cell)) + GAP);
                }
            }
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Names, and beside them their values in lines that fit.
    fn wrapped(&self, width: usize) -> String {
        let indent = self.natural().first().map_or(0, |names| names + GAP);
        let mut lines = Vec::new();
        for row in &self.rows {
            let (name, value) = (row.first().map_or("", String::as_str), row.get(1..).unwrap_or_default().join("  "));
            for (place, line) in wrap(&value, width.saturating_sub(indent).max(WRAPPED_LEAST)).into_iter().enumerate() {
                let name = if place == 0 { name } else { "" };
                let padding = " ".repeat(indent.saturating_sub(visible_width(name)));
                lines.push(format!("{name}{padding}{line}").trim_end().to_owned());
            }
        }
        lines.join("\n")
    }
}

/// The width of columns with gaps between them.
fn total(widths: impl ExactSizeIterator<Item = usize>) -> usize {
    let gaps = widths.len().saturating_sub(1) * GAP;
    widths.sum::<usize>() + gaps
}

/// `text` in lines of at most `width` columns, broken between words; at least one line. A longer word has a line alone.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && visible_width(&line) + 1 + visible_width(word) > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
    }
    lines
}

/// The columns that `text` takes on a terminal, where colour codes take none.
pub(crate) fn visible_width(text: &str) -> usize {
    pieces(text).map(piece_width).sum()
}

/// `text` in `width` columns, the last of which is an ellipsis; colour codes stay.
fn shortened(text: &str, width: usize) -> String {
    let (mut short, mut left, mut is_cut) = (String::new(), width.saturating_sub(1), false);
    for piece in pieces(text) {
        let width = piece_width(piece);
        if piece.starts_with(ESCAPE) {
            short += piece;
        } else if !is_cut && width <= left {
            left -= width;
            short += piece;
        } else if !is_cut {
            is_cut = true;
            short.push('…');
        }
    }
    short
}

/// The characters of `text`, and each of its colour codes as a whole.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let first = text.chars().next()?;
        let (piece, rest) = text.split_at(colour_code(text).unwrap_or(first.len_utf8()));
        text = rest;
        Some(piece)
    })
}

/// The length of the colour code with which `text` begins.
fn colour_code(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix(ESCAPE)?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some(ESCAPE.len() + end + 1)
}

fn piece_width(piece: &str) -> usize {
    if piece.starts_with(ESCAPE) { 0 } else { piece.chars().map(|c| c.width().unwrap_or(0)).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red(text: &str) -> String {
        format!("\u{1b}[31m{text}\u{1b}[0m")
    }

    fn activations() -> Table {
        let mut table = Table::new(&["ID", "FUNCTION", "WAIT", "OUTCOME"]).less_important(&["WAIT"]);
        table.add_row(["0191c2a4-0000", "blur", "1.2 ms", "answered"]);
        table.add_row(["0191c2a4-0001", "a-function-with-a-long-name", "3 ms", &red("handler raised ValueError: no")]);
        table
    }

    fn widths(text: &str) -> Vec<usize> {
        text.lines().map(visible_width).collect()
    }

    #[test]
    fn in_a_pipe_a_table_has_all_its_columns_whole_and_in_line() {
        let text = activations().text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ID             FUNCTION                     WAIT    OUTCOME");
        assert_eq!(lines[1], "0191c2a4-0000  blur                         1.2 ms  answered");
        assert!(lines[2].ends_with(&red("handler raised ValueError: no")), "{text}");
    }

    #[test]
    fn colours_take_no_columns() {
        let mut table = Table::new(&["STATUS", "BEGAN"]);
        table.add_row([red("FAILED"), "now".to_owned()]).add_row(["RUNNING", "then"]);
        let text = table.text(Some(80));
        assert_eq!(text.lines().next(), Some("STATUS   BEGAN"));
        assert!(text.contains(&format!("{}   now", red("FAILED"))), "{text}");
    }

    #[test]
    fn a_table_fits_every_width_and_loses_the_less_important_columns_first() {
        for width in 30..120 {
            let text = activations().text(Some(width));
            assert!(widths(&text).iter().all(|line| *line <= width), "{width}:\n{text}");
            assert!(text.contains("0191c2a4-0001"), "an id is whole at every width:\n{text}");
        }
        let narrow = activations().text(Some(44));
        assert!(!narrow.contains("WAIT") && narrow.contains("OUTCOME") && narrow.contains('…'), "{narrow}");
    }

    #[test]
    fn what_is_shortened_keeps_its_colour_and_ends_it() {
        assert_eq!(shortened(&red("abcdef"), 4), red("abc…"));
        assert_eq!(visible_width(&red("abc…")), 4);
        assert_eq!(visible_width("日本"), 4);
        assert_eq!(shortened("日本語", 4), "日…");
    }

    #[test]
    fn values_beside_their_names_are_wrapped_between_words() {
        let mut table = Table::new(&[]);
        table.add_row(["isolation", "each its own user, files, processes and network"]).add_row(["up", "3 s"]);
        let text = table.text(Some(40));
        assert_eq!(text, "isolation  each its own user, files,\n           processes and network\nup         3 s");
        assert_eq!(table.text(None).lines().count(), 2);
    }

    #[test]
    fn a_line_break_stays_in_a_list_of_values_and_is_a_space_in_a_table() {
        let mut list = Table::new(&[]);
        list.add_row(["why", "one\ntwo"]);
        assert_eq!(list.text(Some(80)), "why  one\n     two");
        let mut table = Table::new(&["WHY"]);
        table.add_row(["one\ntwo"]);
        assert_eq!(table.text(None), "WHY\none two");
    }
}
