//! What a process does about the executions of a namespace: pure.

use std::time::Duration;

use nigh_dispatch::OwnershipState;

/// How long each of those that may take a namespace waits for the one before it.
const TURN: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// This process owns the namespace: it leads its executions, in this term.
    Lead(u64),
    /// Nobody owns it, and this process is to.
    Take,
    /// What it leads of them it leads no more.
    LetGo,
}

/// How a process stands to a namespace with executions; `rank` of those that may take it, as far as it may; which has had no
/// owner for so long.
pub(super) fn duty(standing: &OwnershipState, rank: Option<usize>, open_for: Duration) -> Duty {
    match (standing, rank) {
        (OwnershipState::Mine(term), _) => Duty::Lead(*term),
        (OwnershipState::Open { .. }, Some(rank)) if open_for >= TURN * u32::try_from(rank).unwrap_or(u32::MAX) => {
            Duty::Take
        }
        (OwnershipState::Open { .. } | OwnershipState::Theirs(_), _) => Duty::LetGo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_first_takes_a_namespace_at_once_and_the_others_later() {
        let open = OwnershipState::Open { term: 3, abandoned: true };
        assert_eq!(duty(&OwnershipState::Mine(2), None, Duration::ZERO), Duty::Lead(2));
        assert_eq!(duty(&open, Some(0), Duration::ZERO), Duty::Take);
        assert_eq!(duty(&open, Some(2), TURN), Duty::LetGo);
        assert_eq!(duty(&open, Some(2), TURN * 2), Duty::Take);
        assert_eq!(duty(&open, None, TURN * 100), Duty::LetGo, "one that may own nothing");
    }
}
