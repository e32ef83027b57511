//! Memory gathers for a function that does not fit beside the busy sandboxes. Pure.

use std::hash::Hash;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, Monotonic};

use super::command::Command;
use super::concurrency::{FunctionKey, which};
use super::pool_state::{PoolState, State};
use super::{SandboxPool, Waiter};

/// Memory gathers for an invocation that has waited this long and does not fit beside busy sandboxes: others do not get
/// it.
const GATHERS_AFTER: Duration = Duration::from_secs(1);
/// Memory gathers this long. Then the other functions have as long to themselves, and then it first gathers for another
/// one.
const GATHERS_FOR: Duration = Duration::from_secs(2);

impl<S: Clone + Eq + Hash> SandboxPool<S> {
    /// Looks for functions that do not fit beside the busy sandboxes. If there is one, idle sandboxes are frozen at once; memory
    /// gathers for the first in turn that has waited long.
    pub(super) fn gather(&mut self, now: Monotonic, commands: &mut Vec<Command<S>>) {
        let Self { state, queue, .. } = self;
        let is_over = |(who, _, until): &(FunctionKey, ByteSize, Monotonic)| {
            now >= *until || state.functions.get(who).is_none_or(|known| known.waiting == 0)
        };
        if state.gathers.as_ref().is_some_and(is_over) {
            state.gathered_last = state.gathers.take().map(|(who, ..)| who);
            state.gathers_again = now.after(GATHERS_FOR);
        }
        let mut lacks = false;
        for head in queue.heads(now) {
            let Waiter { function, since } = head.item;
            let held =
                state.warmest(function).and_then(|one| state.records.get(one)).map(|record| match record.state {
                    State::Idle(_) => record.function.memory,
                    State::Busy | State::Resting(_) | State::Ending => record.takes,
                });
            if held.is_none() && (state.sandboxes_of(function, now) > 0 || !state.may_start(&function.namespace, now)) {
                continue;
            }
            let is_idle_unfrozen = held == Some(function.memory);
            let lack = state.lack(function, held).filter(|lack| lack.is_none());
            if lack.is_some() || is_idle_unfrozen {
                continue;
            }
            lacks = true;
            let fits = state.room.busy + function.memory <= state.limits.memory();
            let waits_long = now.since(*since) >= GATHERS_AFTER && now >= state.gathers_again;
            if state.gathers.is_none() && !fits && waits_long && state.gathered_last.as_ref() != Some(&which(function))
            {
                state.gathers = Some((which(function), function.memory, now.after(GATHERS_FOR)));
            }
        }
        if lacks {
            commands.extend(state.hurry().into_iter().map(Command::Freeze));
        }
    }
}

/// `function` has got its memory: memory no longer gathers for it.
pub(super) fn gathered<S>(state: &mut PoolState<S>, function: &Function) {
    if state.gathers.as_ref().is_some_and(|(who, ..)| *who == which(function)) {
        state.gathers = None;
    }
}
