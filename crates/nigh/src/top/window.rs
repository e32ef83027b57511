//! The lines of a screen: what stays above, the part of the rows with the cursor, and a line of help below. Pure.

use super::row::{Cursor, Row};
use crate::printable::shortened;

/// Marks the row with the cursor, and the others.
const MARKED: &str = "> ";
const UNMARKED: &str = "  ";
/// Columns that a row has less than the screen.
pub(super) const MARK_COLUMNS: usize = MARKED.len();

/// At most `height` lines of at most `width` columns.
pub(super) fn window(
    head: &[String],
    rows: &[Row],
    cursor: &Cursor,
    foot: &str,
    (width, height): (usize, usize),
) -> Vec<String> {
    let room = height.saturating_sub(head.len() + 1);
    let place = cursor.place(rows);
    let from = (place + 1).saturating_sub(room);
    let seen = rows.iter().enumerate().skip(from).take(room);
    let marked = seen.map(|(at, row)| format!("{}{}", if at == place { MARKED } else { UNMARKED }, row.text));
    let mut lines: Vec<String> = head.iter().cloned().chain(marked).collect();
    // The line of help is the last, however few rows there are.
    lines.resize(height.saturating_sub(1), String::new());
    if height > 0 {
        lines.push(foot.to_owned());
    }
    lines.iter().map(|line| shortened(line, width).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_always_seen_and_the_help_stands_at_the_end() {
        let rows: Vec<Row> = (0..10).map(|n| Row::plain(format!("row {n}"))).collect();
        let (head, mut cursor) = (["head".to_owned()], Cursor::default());
        assert_eq!(window(&head, &rows, &cursor, "help", (80, 4)), ["head", "> row 0", "  row 1", "help"]);
        cursor.step(&rows, 5);
        assert_eq!(window(&head, &rows, &cursor, "help", (80, 4)), ["head", "  row 4", "> row 5", "help"]);
        assert_eq!(window(&head, &[], &cursor, "a long line", (6, 3)), ["head", "", "a lon…"]);
        assert_eq!(window(&head, &rows, &cursor, "help", (80, 1)), ["help"]);
        assert!(window(&head, &rows, &cursor, "help", (80, 0)).is_empty());
    }
}
