//! Whether an invocation may be run again: pure.
//!
//! The function chooses by a variable of its environment. Nigh runs a synchronous invocation again if no byte of it had run, or
//! if the function is idempotent and may have failed because Nigh granted it less memory than it booked. Events are retried as
//! their configuration says (`event_queue`).

use std::collections::BTreeMap;

use thiserror::Error;

use super::Outcome;

/// The variable in a function's environment.
pub const IDEMPOTENT_VARIABLE: &str = "NIGH_IDEMPOTENT";
const YES: &str = "true";
const NO: &str = "false";

/// The variable has an unknown value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{IDEMPOTENT_VARIABLE} is {0:?}; it can be \"{YES}\" or \"{NO}\"")]
pub struct UnknownIdempotence(String);

/// Whether the function may run twice for one invocation, as its environment says; None if it does not say.
///
/// # Errors
/// If the variable has an unknown value.
pub fn says(environment: &BTreeMap<String, String>) -> Result<Option<bool>, UnknownIdempotence> {
    match environment.get(IDEMPOTENT_VARIABLE).map(String::as_str) {
        None => Ok(None),
        Some(YES) => Ok(Some(true)),
        Some(NO) => Ok(Some(false)),
        Some(other) => Err(UnknownIdempotence(other.to_owned())),
    }
}

/// True if an invocation that ended like this is run again, with its whole booking. `came_short`: it reached a limit
/// below that.
#[must_use]
pub fn runs_again(environment: &BTreeMap<String, String>, outcome: &Outcome, came_short: bool) -> bool {
    let failed = matches!(outcome, Outcome::OutOfMemory | Outcome::Crashed { .. } | Outcome::HandlerError { .. });
    // Earlier builds of Nigh accepted values that the doors refuse now; they count as none.
    failed && came_short && says(environment) == Ok(Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saying(word: &str) -> BTreeMap<String, String> {
        [(IDEMPOTENT_VARIABLE.to_owned(), word.to_owned())].into()
    }

    #[test]
    fn a_function_says_that_it_is_idempotent_or_not_or_nothing() {
        assert_eq!(says(&BTreeMap::new()), Ok(None));
        assert_eq!((says(&saying("true")), says(&saying("false"))), (Ok(Some(true)), Ok(Some(false))));
        assert!(says(&saying("yes")).unwrap_err().to_string().contains("\"true\" or \"false\""));
    }

    #[test]
    fn only_an_idempotent_function_that_failed_below_what_it_booked_is_run_again() {
        let yes = saying("true");
        assert!(runs_again(&yes, &Outcome::OutOfMemory, true));
        assert!(runs_again(&yes, &Outcome::Crashed { reason: String::new() }, true));
        assert!(!runs_again(&yes, &Outcome::OutOfMemory, false), "it needed more than it booked");
        assert!(!runs_again(&yes, &Outcome::Answered, true) && !runs_again(&yes, &Outcome::TimedOut, true));
        for other in [saying("false"), saying("perhaps"), BTreeMap::new()] {
            assert!(!runs_again(&other, &Outcome::OutOfMemory, true));
        }
    }
}
