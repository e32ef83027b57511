//! What a process must do with the executions of a namespace: pure.

use std::time::Duration;

use nigh_dispatch::OwnershipState;

/// How long each controller waits for the one before it, in the order of ranks, to take a namespace.
const TURN: Duration = Duration::from_secs(1);

/// What a process must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerCommand {
    /// Run the executions under this owner epoch: this process owns the namespace.
    Lead(u64),
    /// Take the namespace: it has no owner.
    Take,
    /// Stop the executions: this process no longer owns the namespace.
    LetGo,
}

/// What a process in this state must do for a namespace with executions. `rank`: its rank among those that may take the
/// namespace; `open_for`: how long the namespace has had no owner.
pub(super) fn owner_command(standing: &OwnershipState, rank: Option<usize>, open_for: Duration) -> OwnerCommand {
    match (standing, rank) {
        (OwnershipState::Mine(term), _) => OwnerCommand::Lead(*term),
        (OwnershipState::Open { .. }, Some(rank)) if open_for >= TURN * u32::try_from(rank).unwrap_or(u32::MAX) => {
            OwnerCommand::Take
        }
        (OwnershipState::Open { .. } | OwnershipState::Theirs(_), _) => OwnerCommand::LetGo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_first_takes_a_namespace_at_once_and_the_others_later() {
        let open = OwnershipState::Open { term: 3, abandoned: true };
        assert_eq!(owner_command(&OwnershipState::Mine(2), None, Duration::ZERO), OwnerCommand::Lead(2));
        assert_eq!(owner_command(&open, Some(0), Duration::ZERO), OwnerCommand::Take);
        assert_eq!(owner_command(&open, Some(2), TURN), OwnerCommand::LetGo);
        assert_eq!(owner_command(&open, Some(2), TURN * 2), OwnerCommand::Take);
        assert_eq!(owner_command(&open, None, TURN * 100), OwnerCommand::LetGo, "one that may own nothing");
    }
}
