//! Whether a function gains from the object cache: what it says of itself. Where it says nothing it does, until
//! nigh-sizing's `memory_sizing` has learned for which invocations. Pure.
//!
//! By a variable of its environment, as it says all that is Nigh's alone. What is read on behalf of one that says it gains
//! nothing is not brought into the cache for it, of one that was learned to gain nothing only while much of the cache is
//! free; what is there serves it as everybody. Nothing else depends on it: neither what a read gives nor how a write is kept.

use std::collections::BTreeMap;

use nigh_terms::Admission;
use thiserror::Error;

/// The variable by which a function says it.
pub const CACHE_VARIABLE: &str = "NIGH_CACHE";
/// Its word for a gain.
pub const BENEFIT: &str = "benefit";
/// Its word for none.
pub const NONE: &str = "none";

/// The variable has another word.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{CACHE_VARIABLE} is {0:?}; it can be \"{BENEFIT}\" or \"{NONE}\"")]
pub struct UnknownCaching(String);

/// What a function with this environment reads is cached unless it says that it gains nothing.
///
/// # Errors
/// If it says a word that is none.
pub fn admission(environment: &BTreeMap<String, String>) -> Result<Admission, UnknownCaching> {
    said(environment).map(|said| if said == Some(false) { Admission::Never } else { Admission::Always })
}

/// What a function with this environment says of it itself.
///
/// # Errors
/// If it says a word that is none.
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
