//! Tables that people read.

use comfy_table::{Row, Table, presets};

/// A table whose columns have these names, parted by ` | `.
pub(crate) fn table_of(columns: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(columns.split(" | "));
    table
}

/// A table of these rows below `head`.
pub(crate) fn grid<R: Into<Row>>(head: impl Into<Row>, rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = plain_grid(head, rows);
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table
}

/// The same with nothing between its columns but space.
pub(crate) fn plain_grid<R: Into<Row>>(head: impl Into<Row>, rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    table.add_rows(rows);
    table
}
