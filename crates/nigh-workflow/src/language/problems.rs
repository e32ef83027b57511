//! What is wrong with a definition, each problem with its place. Pure.

use std::cell::RefCell;
use std::fmt;

/// Something that is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `States.Fetch.Next`.
    pub path: String,
    /// Its code, as AWS has it.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl Problem {
    /// Where, as AWS writes it: `/States/Fetch/Next`.
    #[must_use]
    pub fn location(&self) -> String {
        format!("/{}", self.path.replace('.', "/"))
    }
}

/// Problems that are reported for one definition; there may be more.
const PROBLEMS_MAX: usize = 100;
/// The codes of problems, as AWS has them.
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
