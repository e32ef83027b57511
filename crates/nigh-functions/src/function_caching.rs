//! Whether a function benefits from the object cache, by a variable of its environment. Pure.
//!
//! A function without the variable benefits, until nigh-sizing's `memory_sizing` has learned for which invocations. Objects that
//! are read for a function which says that it does not benefit are not cached; if that was only learned, they are cached while
//! much of the cache is free. Copies that are cached serve every function. Nothing else depends on the variable: neither what a
//! read returns nor how a write is stored.

use std::collections::BTreeMap;

use nigh_terms::Admission;
use thiserror::Error;

/// The variable in a function's environment.
pub const CACHE_VARIABLE: &str = "NIGH_CACHE";
/// The value for a function that benefits.
pub const BENEFIT: &str = "benefit";
/// The value for a function that does not.
pub const NONE: &str = "none";

/// The variable has another value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{CACHE_VARIABLE} is {0:?}; it can be \"{BENEFIT}\" or \"{NONE}\"")]
pub struct UnknownCaching(String);

/// Whether objects are cached that a function with this environment reads.
///
/// # Errors
/// If the variable has another value.
pub fn admission(environment: &BTreeMap<String, String>) -> Result<Admission, UnknownCaching> {
    said(environment).map(|said| if said == Some(false) { Admission::Never } else { Admission::Always })
}

/// Whether a function with this environment says that it benefits; None if it does not say.
///
/// # Errors
/// If the variable has another value.
pub fn said(environment: &BTreeMap<String, String>) -> Result<Option<bool>, UnknownCaching> {
    match environment.get(CACHE_VARIABLE).map(String::as_str) {
        None => Ok(None),
        Some(BENEFIT) => Ok(Some(true)),
        Some(NONE) => Ok(Some(false)),
        Some(other) => Err(UnknownCaching(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_gains_from_the_cache_unless_it_says_that_it_does_not() {
        let says = |word: &str| admission(&[(CACHE_VARIABLE.to_owned(), word.to_owned())].into());
        assert_eq!(admission(&BTreeMap::new()), Ok(Admission::Always));
        assert_eq!((says("benefit"), says("none")), (Ok(Admission::Always), Ok(Admission::Never)));
        assert!(says("no").unwrap_err().to_string().contains("\"benefit\" or \"none\""));
    }
}
