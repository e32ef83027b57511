//! SEMANTICS.md: each promise says where it holds and to what bound, and names tests that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::each_source;

/// What the cells of a column may say, several with commas between them. The cells of other columns are prose.
const VALUES: [(&str, &[&str]); 3] = [
    ("modes", &["through", "shadow", "lazy", "ephemeral", "durable", "all"]),
    ("stores", &["directory", "S3", "Swift", "all"]),
    ("nodes", &["alone", "cluster", "all"]),
];

/// The columns of the table that has a test for each store and mode.
const STORES_AND_MODES: [&str; 5] = ["stores", "through", "shadow", "lazy", "ephemeral"];

/// What its cells say instead of a test: the store refuses the mode, or nothing of such objects goes to a store.
const WITHOUT_TEST: [&str; 2] = ["not offered", "as directory"];

struct Table<'a> {
    columns: Vec<&'a str>,
    rows: Vec<Vec<&'a str>>,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn semantics() -> String {
    std::fs::read_to_string(project().join("SEMANTICS.md")).unwrap()
}

/// The cells of a row, whether or not a bar ends it.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn tables(page: &str) -> Vec<Table<'_>> {
    let lines: Vec<&str> = page.lines().collect();
    let blocks = lines.split(|line| !line.starts_with('|'));
    let tables = blocks.filter_map(|block| match block {
        [head, _, rows @ ..] => Some(Table { columns: cells(head), rows: rows.iter().map(|row| cells(row)).collect() }),
        _ => None,
    });
    tables.collect()
}

/// The tables of promises: those whose last column names tests.
fn promises(page: &str) -> Vec<Table<'_>> {
    tables(page).into_iter().filter(|table| table.columns.last() == Some(&"tests")).collect()
}

/// What a cell has in backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn assert_values(column: &str, cell: &str) {
    if let Some((_, values)) = VALUES.iter().find(|(name, _)| *name == column) {
        let unknown = cell.split(", ").find(|value| !values.contains(value));
        assert_eq!(unknown, None, "in a cell `{cell}` of the column `{column}`, which may say {values:?}");
    }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let mut code = String::new();
    each_source(&project().join("crates"), &mut |_, text| code.push_str(text));
    let page = semantics();
    let mut count = 0;
    for row in promises(&page).iter().flat_map(|table| &table.rows) {
        let tests: Vec<&str> = names(row.last().unwrap()).collect();
        assert!(!tests.is_empty(), "no test for: {row:?}");
        for name in tests {
            assert!(code.contains(&format!("fn {name}(")), "SEMANTICS.md names a test that is not there: {name}");
        }
        count += 1;
    }
    assert!(count > 200, "the tables of promises are not read: {count} rows");
}

#[test]
fn every_promise_says_where_it_holds_and_to_what_bound() {
    let page = semantics();
    for Table { columns, rows } in promises(&page) {
        assert!(columns.iter().any(|column| column.starts_with("bound")), "no column for the bound: {columns:?}");
        for row in rows {
            assert_eq!(row.len(), columns.len(), "cells of {row:?}");
            for (column, cell) in columns.iter().zip(&row) {
                assert!(!cell.is_empty(), "the column `{column}` says nothing in {row:?}");
                assert_values(column, cell);
            }
        }
    }
    // A line below a heading says where the tables of its section hold.
    let begins = ["Modes: ", "Stores: ", "Nodes: "];
    let sections = page.lines().filter(|line| begins.iter().any(|begin| line.starts_with(begin)));
    for part in sections.flat_map(|line| line.trim_end_matches('.').split(". ")) {
        let (column, cell) = part.split_once(": ").unwrap();
        let column = column.to_lowercase();
        assert!(VALUES.iter().any(|(name, _)| *name == column), "`{part}` names no column");
        assert_values(&column, cell);
    }
}

#[test]
fn each_store_has_a_test_of_each_mode_that_it_offers() {
    let page = semantics();
    let promised: BTreeSet<&str> =
        promises(&page).iter().flat_map(|table| &table.rows).flat_map(|row| names(row.last().unwrap())).collect();
    let table = tables(&page).into_iter().find(|table| table.columns == STORES_AND_MODES).unwrap();
    let stores: Vec<&str> = table.rows.iter().map(|row| row[0]).collect();
    assert_eq!(stores, ["directory", "S3", "Swift"]);
    for row in &table.rows {
        assert_eq!(row.len(), STORES_AND_MODES.len(), "cells of {row:?}");
        for cell in &row[1..] {
            let tests: Vec<&str> = names(cell).collect();
            assert!(WITHOUT_TEST.contains(cell) || !tests.is_empty(), "no test for `{cell}` in {row:?}");
            assert!(tests.iter().all(|test| promised.contains(test)), "{cell} is no promise's test");
        }
    }
}
