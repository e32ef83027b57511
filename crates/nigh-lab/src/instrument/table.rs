//! Tables that people read.

use comfy_table::{Table, presets};

/// A table whose columns have these names, parted by ` | `.
pub(crate) fn table_of(columns: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(columns.split(" | "));
    table
}
