//! Assertions that stay on in release and end the process.
//!
//! A plain `assert!` in a task ends that task only; the rest of the process would go on with state that is known to be
//! wrong. `invariant!` is for what a state machine relies on and no input can break.

use std::fmt;
use std::panic::Location;

/// Ends the process if the condition is false; the message says why it must hold and prints the state.
///
/// In debug builds it panics, so that tests and explorers of interleavings report it as theirs.
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::broken_invariant(::std::format_args!($($message)+))
        }
    };
}

/// What `invariant!` calls when its condition is false.
#[cold]
#[inline(never)]
#[track_caller]
pub fn broken_invariant(message: fmt::Arguments<'_>) -> ! {
    if cfg!(debug_assertions) {
        panic!("broken invariant: {message}");
    }
    #[expect(clippy::print_stderr, reason = "the process ends: no log would still be written")]
    {
        eprintln!("nigh: broken invariant at {}: {message}; the process ends", Location::caller());
    }
    std::process::abort()
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "broken invariant: three is less than 2")]
    fn a_broken_invariant_tells_the_state() {
        let most = 2;
        invariant!(3 <= most, "three is less than {most}");
    }
}
