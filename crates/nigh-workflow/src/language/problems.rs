//! The problems of a definition, each with its place. Pure.

use std::cell::RefCell;
use std::fmt;

/// A problem of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem's place: `States.Fetch.Next`.
    pub path: String,
    /// The problem's code in AWS.
    pub code: &'static str,
    /// The problem's description for people.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl Problem {
    /// The problem's place in AWS's form: `/States/Fetch/Next`.
    #[must_use]
    pub fn location(&self) -> String {
        format!("/{}", self.path.replace('.', "/"))
    }
}

/// The most problems that are reported for one definition.
const PROBLEMS_MAX: usize = 100;
/// The codes of problems in AWS.
pub(crate) mod code {
    pub(crate) const SCHEMA: &str = "SCHEMA_VALIDATION_FAILED";
    pub(crate) const TARGET: &str = "MISSING_TRANSITION_TARGET";
    pub(crate) const PATH: &str = "INVALID_JSON_PATH";
    pub(crate) const DUPLICATE: &str = "DUPLICATE_STATE_NAME";
}

/// The problems of a definition, in the order in which they were found.
#[derive(Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(crate) fn add(&self, path: String, code: &'static str, message: impl Into<String>) {
        let mut problems = self.0.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(Problem { path, code, message: message.into() });
        }
    }

    pub(crate) fn into_all(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}
