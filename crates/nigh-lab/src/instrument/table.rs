//! Tables for terminals.

use comfy_table::{Row, Table, presets};

/// A table whose columns have these names, parted by ` | `.
pub(crate) fn table_of(columns: &str) -> Table {
    grid(columns.split(" | "), Vec::<Row>::new())
}

/// A table of these rows below `head`.
pub(crate) fn grid<R: Into<Row>>(head: impl Into<Row>, rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(head);
    table.add_rows(rows);
    table
}
