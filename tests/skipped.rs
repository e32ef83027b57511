//! How a Rust test says that it cannot run here: the one function that prints `SKIPPED: NAME: REASON`.
//!
//! `make test` sets NIGH_TEST_MAY_SKIP to a file of the tests that may skip on this machine (`.ci/may-skip`, as far as
//! scripts/may_skip.py finds the conditions to hold). Any other test then fails where it would skip.

use std::fmt::Display;

/// Says that `test` cannot run on this machine. The test returns after that.
///
/// # Panics
/// If NIGH_TEST_MAY_SKIP is set, and its file does not name the test first in a line.
#[allow(clippy::print_stdout, reason = "a skipped test says so; in unit tests it may anyway")]
#[allow(clippy::disallowed_methods, reason = "some crates may not touch environment and files; this is their tests'")]
pub(crate) fn skip(test: &str, reason: impl Display) {
    println!("SKIPPED: {test}: {reason}");
    let Some(file) = std::env::var_os("NIGH_TEST_MAY_SKIP") else { return };
    let listed = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("cannot read {}, which NIGH_TEST_MAY_SKIP names: {error}", file.display()));
    let may_skip = listed.lines().any(|line| line.split_whitespace().next() == Some(test));
    assert!(may_skip, "{test} must run here and cannot: {reason}. Install that, or list the test in .ci/may-skip");
}
