//! A figure beside its target.

use std::fmt;

use serde::Serialize;

/// Absent is what could not be measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) measured: Option<f64>,
    pub(crate) bound: f64,
    /// True where more is better.
    pub(crate) at_least: bool,
    pub(crate) met: Option<bool>,
}

impl Verdict {
    /// `measured` should be `bound` or more.
    pub(crate) fn at_least(what: impl Into<String>, measured: impl Into<Option<f64>>, bound: f64) -> Self {
        let measured = measured.into();
        let met = measured.map(|measured| measured >= bound);
        Self { what: what.into(), measured, bound, at_least: true, met }
    }

    /// `measured` should be `bound` or less.
    pub(crate) fn at_most(what: impl Into<String>, measured: impl Into<Option<f64>>, bound: f64) -> Self {
        let measured = measured.into();
        let met = measured.map(|measured| measured <= bound);
        Self { what: what.into(), measured, bound, at_least: false, met }
    }

    pub(crate) fn sign(&self) -> &'static str {
        if self.at_least { ">=" } else { "<=" }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let measured = self.measured.map_or_else(|| "-".to_owned(), |measured| format!("{measured:.3}"));
        write!(f, "{}: {measured}, target {} {}: {met}", self.what, self.sign(), self.bound)
    }
}
