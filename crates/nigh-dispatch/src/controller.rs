//! What a controller keeps: the namespaces that it owns, the invocations that wait for a node, and how many run. No I/O.

pub(crate) mod cluster_view;
mod placement;

use std::collections::HashMap;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_invoke::invocation::InvokeError;
use nigh_schedule::scheduler::Weights;
use nigh_schedule::scheduler::dispatch_queue::{DispatchLimits, DispatchQueue, NewEntry, Turn};
use nigh_terms::{Monotonic, Namespace, Token, invariant};

use self::cluster_view::{FunctionKey, which};
use self::placement::PlacementState;
pub(crate) use self::placement::{DispatchPlacement, OwnedNamespace, WaitingInvocation};

/// Namespaces that are taken over at a time, at most. With more, tokens wait until the homes are read.
const TAKEOVERS_MAX: usize = 4096;
/// How long a run counts of a function of which none has ended.
const RUN_UNKNOWN: Duration = Duration::from_millis(100);

/// What a controller keeps.
pub(super) struct ControllerState {
    pub(super) placing: PlacementState,
    pub(super) queue: DispatchQueue<WaitingInvocation>,
    reserved: HashMap<FunctionKey, usize>,
    running: HashMap<FunctionKey, usize>,
    /// The namespaces whose term this controller has announced and whose homes it has not read yet: the term, and what was
    /// handed to it meanwhile.
    takeovers: HashMap<Namespace, (u64, Token)>,
}

impl ControllerState {
    pub(super) fn new(weights: Weights, cold_start: Duration, limits: DispatchLimits) -> Self {
        let placing = PlacementState::new(weights, cold_start);
        let (reserved, running, takeovers) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { placing, queue: DispatchQueue::new(limits), reserved, running, takeovers }
    }

    /// Adds to the frontier what an invocation or a writer had seen. False if this controller does not own the namespace, or
    /// not in `term`.
    pub(super) fn see(&mut self, namespace: &Namespace, term: Option<u64>, token: &Token) -> bool {
        let owned = self.placing.owned.get_mut(namespace).filter(|owned| term.is_none_or(|term| owned.term == term));
        let Some(owned) = owned else { return false };
        owned.see(token);
        true
    }

    /// As `see`, also while this controller takes the namespace over. False if it does neither.
    pub(super) fn keep(&mut self, namespace: &Namespace, token: &Token) -> bool {
        if self.see(namespace, None, token) {
            return true;
        }
        let Some((_, kept)) = self.takeovers.get_mut(namespace) else { return false };
        kept.join(token);
        true
    }

    /// This controller has announced `term`, and reads the homes from now on. True if it keeps tokens meanwhile.
    pub(super) fn takes_over(&mut self, namespace: &Namespace, term: u64) -> bool {
        match self.takeovers.get(namespace) {
            // An unfinished takeover of the same term goes on with what it has.
            Some((known, _)) if *known == term => return true,
            None if self.takeovers.len() >= TAKEOVERS_MAX => return false,
            Some(_) | None => {}
        }
        self.takeovers.insert(namespace.clone(), (term, Token::empty()));
        true
    }

    /// The term in which this controller takes `namespace` over.
    pub(super) fn takeover(&self, namespace: &Namespace) -> Option<u64> {
        self.takeovers.get(namespace).map(|(term, _)| *term)
    }

    /// Ends the takeover of `namespace` in `term`. Returns what was handed over meanwhile; none if that takeover has ended
    /// before.
    pub(super) fn end_takeover(&mut self, namespace: &Namespace, term: u64) -> Option<Token> {
        if self.takeover(namespace) != Some(term) {
            return None;
        }
        self.takeovers.remove(namespace).map(|(_, kept)| kept)
    }

    /// The term in which this controller owns `namespace`.
    pub(super) fn term(&self, namespace: &Namespace) -> Option<u64> {
        self.placing.owned.get(namespace).map(|owned| owned.term)
    }

    /// An invocation of `function` begins: it waits or runs from now on.
    ///
    /// # Errors
    /// If as many run as are reserved for the function.
    pub(super) fn begins(&mut self, function: &Function) -> Result<(), InvokeError> {
        let key = which(function);
        let running = self.running.entry(key.clone()).or_default();
        match self.reserved.get(&key) {
            Some(&limit) if *running >= limit => {
                if *running == 0 {
                    self.running.remove(&key);
                }
                Err(InvokeError::ReservedConcurrency { function: key.1, limit })
            }
            _ => {
                *running += 1;
                Ok(())
            }
        }
    }

    /// An invocation of `function` has ended.
    pub(super) fn ends(&mut self, function: &Function) {
        let key = which(function);
        if let Some(running) = self.running.get_mut(&key) {
            // `begins` has counted it, and removes the entry of a function without invocations.
            invariant!(*running > 0, "{key:?} ends an invocation, and none was counted");
            *running -= 1;
            if *running == 0 {
                self.running.remove(&key);
            }
        }
    }

    pub(super) fn set_reserved(&mut self, function: FunctionKey, concurrency: Option<usize>) {
        let _before = match concurrency {
            Some(limit) => self.reserved.insert(function, limit),
            None => self.reserved.remove(&function),
        };
    }

    /// An invocation waits for a node.
    ///
    /// # Errors
    /// If as many wait as may.
    pub(super) fn waits(
        &mut self,
        waiting: WaitingInvocation,
        deadline: Monotonic,
        now: Monotonic,
    ) -> Result<(), InvokeError> {
        let run = self.placing.run(&waiting.function).unwrap_or(RUN_UNKNOWN);
        let (namespace, function) = which(&waiting.function);
        let entry = NewEntry { namespace, function, run, deadline, item: waiting };
        self.queue.push(entry, now).map(|_ticket| ()).map_err(|full| InvokeError::TooManyRequests(full.to_string()))
    }

    /// Tells each invocation whose turn has come where it goes.
    pub(super) fn pump(&mut self, now: Monotonic) {
        let Self { placing, queue, .. } = self;
        while let Some(turn) = queue.next(now, |waiting| placing.place(waiting, now)) {
            match turn {
                Turn::Placed(_, waiting, placed) => {
                    if let Err(Ok(DispatchPlacement::At { dispatch, .. })) = waiting.turn.send(Ok(placed)) {
                        placing.view.over(dispatch.to, &waiting.function, false);
                    }
                }
                Turn::Expired(_, waiting) => {
                    let why = "no node could take it in time; invoke again later, or add nodes".to_owned();
                    let _nobody_waits = waiting.turn.send(Err(InvokeError::TooManyRequests(why)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence, ShardId, Version};

    use super::*;

    #[test]
    fn what_is_handed_over_during_a_takeover_is_kept_for_its_end_and_no_other() {
        let mut controller = ControllerState::new(Weights::default(), Duration::ZERO, DispatchLimits::default());
        let (tenant, mut token) = (Namespace::new("tenant").unwrap(), Token::empty());
        token.see(ShardId(1), Version { epoch: Epoch(2), sequence: Sequence(3) });
        assert!(!controller.keep(&tenant, &token), "it is no owner");
        assert!(controller.takes_over(&tenant, 3) && controller.keep(&tenant, &token));
        assert!(controller.takes_over(&tenant, 3), "the same takeover goes on");
        assert_eq!((controller.end_takeover(&tenant, 2), controller.takeover(&tenant)), (None, Some(3)));
        assert_eq!(controller.end_takeover(&tenant, 3), Some(token.clone()));
        assert!(!controller.keep(&tenant, &token) && controller.end_takeover(&tenant, 3).is_none());
        assert!(
            controller.takes_over(&tenant, 4) && controller.keep(&tenant, &token) && controller.takes_over(&tenant, 5)
        );
        assert_eq!(controller.end_takeover(&tenant, 5), Some(Token::empty()), "the homes are read after that write");
    }
}
