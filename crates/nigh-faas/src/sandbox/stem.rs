//! A stem, from outside: a sandbox that stands but for the function's code, with a runtime waiting in it.

use super::blank::Blank;

/// A stem. It belongs to nobody and becomes one function's only; dropping it ends it.
#[derive(Debug)]
pub struct Stem {
    /// Its function's folders move in from outside.
    pub(super) blank: Box<Blank>,
    pub(super) said: String,
    pub(super) pids_max: u32,
}

impl Stem {
    /// True if nothing waits in it any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.blank.has_ended()
    }

    /// What its runtime said when it was ready: the modules that it has not, and why. Empty: it has all.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Ends it; when this returns nothing is left of it.
    pub async fn end(self) {
        self.blank.end().await;
    }
}
