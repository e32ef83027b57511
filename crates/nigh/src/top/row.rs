//! The rows of a view, the cursor on them, and the filter that leaves some out. Pure.

/// What a row is about, and what can be opened from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Function(String),
    Object {
        bucket: String,
        key: String,
    },
    Invocation(String),
    /// An invocation in the event queue.
    Event(String),
}

/// A line that the cursor can stand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) target: Option<Target>,
}

impl Row {
    /// A row that nothing can be opened from.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), target: None }
    }

    pub(super) fn of(target: Target, text: String) -> Self {
        Self { text, target: Some(target) }
    }
}

/// What a view shows below its first line: lines that stay, and rows that move under them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// The row that keys are about. It follows its target when the order of rows changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    place: usize,
    target: Option<Target>,
}

impl Cursor {
    /// Its place among `rows`.
    pub(super) fn place(&self, rows: &[Row]) -> usize {
        let is_its = |row: &Row| row.target == self.target;
        if self.target.is_none() || rows.get(self.place).is_some_and(is_its) {
            return self.place.min(rows.len().saturating_sub(1));
        }
        let last = rows.len().saturating_sub(1);
        rows.iter().position(is_its).unwrap_or_else(|| self.place.min(last))
    }

    /// Moves it by `rows_down` rows, within the rows.
    pub(super) fn step(&mut self, rows: &[Row], rows_down: isize) {
        let last = rows.len().saturating_sub(1);
        self.place = self.place(rows).saturating_add_signed(rows_down).min(last);
        self.target = rows.get(self.place).and_then(|row| row.target.clone());
    }

    /// What its row is about.
    pub(super) fn target<'r>(&self, rows: &'r [Row]) -> Option<&'r Target> {
        rows.get(self.place(rows))?.target.as_ref()
    }
}

/// Which rows are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter<'t> {
    /// Part of a name, in any case; with `!` in front, only rows without it. All rows if it is empty.
    pub(super) text: &'t str,
    /// Only rows with a fault.
    pub(super) faults_only: bool,
}

impl Filter<'_> {
    /// True if a row with these words is shown.
    pub(super) fn takes(&self, words: &[&str], has_fault: bool) -> bool {
        if self.faults_only && !has_fault {
            return false;
        }
        let (wanted, part) = self.text.strip_prefix('!').map_or((true, self.text), |part| (false, part));
        let part = part.to_lowercase();
        part.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&part)) == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<Row> {
        names.iter().map(|name| Row::of(Target::Function((*name).to_owned()), String::new())).collect()
    }

    #[test]
    fn the_cursor_follows_its_target_and_stays_within_the_rows() {
        let mut cursor = Cursor::default();
        let before = rows(&["a", "b", "c"]);
        cursor.step(&before, 1);
        let function = |name: &str| Target::Function(name.to_owned());
        assert_eq!(cursor.target(&before), Some(&function("b")));
        let after = rows(&["b", "c", "a"]);
        assert_eq!((cursor.place(&after), cursor.target(&after)), (0, Some(&function("b"))));
        cursor.step(&after, 99);
        assert_eq!(cursor.place(&after), 2);
        assert_eq!(cursor.target(&rows(&["x"])), Some(&function("x")), "its own is gone");
        assert_eq!(cursor.target(&[]), None);
        cursor.step(&[], -5);
        assert_eq!(cursor, Cursor::default());
    }

    #[test]
    fn the_cursor_passes_rows_of_the_same_target() {
        let mut cursor = Cursor::default();
        let twice = rows(&["a", "a", "b"]);
        cursor.step(&twice, 1);
        cursor.step(&twice, 1);
        assert_eq!(cursor.place(&twice), 2);
    }

    #[test]
    fn a_filter_takes_what_has_its_text_or_has_it_not() {
        let takes = |text, faults_only, has_fault| Filter { text, faults_only }.takes(&["Blur", "inbox"], has_fault);
        assert!(takes("", false, false) && takes("blu", false, false) && takes("BOX", true, true));
        assert!(!takes("csv", false, false) && takes("!csv", false, false) && !takes("!blur", false, true));
        assert!(!takes("blur", true, false) && takes("!", false, false));
    }
}
