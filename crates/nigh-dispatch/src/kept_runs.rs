//! Runs by their names, at a node and at an owner to whom other processes hand invocations: runs that go on, and the answers
//! of ended runs for callers that ask again. Pure but for the channel by which an answer comes.
//!
//! A run that is asked for and has never arrived is buried: it is refused when it arrives later, so that the caller may send
//! it elsewhere. A forgotten answer leaves a trace, so that an old run is never taken for one that has never arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_schedule::scheduler::lost_invocation::LossError;
use nigh_terms::{InvocationId, Monotonic, Token};
use tokio::sync::watch;

use crate::wire::{NotRun, RunAnswer, RunId};

/// How long an answer is kept.
const KEPT_FOR: Duration = Duration::from_secs(120);
/// The bytes of all that are kept; beyond, the oldest go.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// How many are kept; beyond, the oldest go.
const KEPT_MAX: usize = 65_536;

/// An answer: its head and its body.
pub(super) type StoredAnswer = Arc<(RunAnswer, Bytes)>;
/// Where an answer comes.
pub(super) type AnswerReceiver = watch::Receiver<Option<StoredAnswer>>;

enum Run {
    Known(AnswerReceiver),
    Buried,
}

/// What becomes of a run that arrives.
pub(super) enum Arrival {
    /// It is to be run; its answer goes here.
    New(watch::Sender<Option<StoredAnswer>>),
    /// It has arrived before, or is buried.
    Known(RunLookup),
}

/// What is known of a run that is asked for.
pub(super) enum RunLookup {
    Known(AnswerReceiver),
    /// It never arrived, and is buried now.
    Never,
    /// It may have run. All forgotten runs had seen this.
    Forgotten(Token),
}

/// The runs that are known.
#[derive(Default)]
pub(super) struct KeptRuns {
    runs: HashMap<RunId, Run>,
    /// Ended and buried runs in that order, each with the time until which it is kept, and its bytes.
    old: VecDeque<(Monotonic, RunId, usize)>,
    bytes: usize,
    /// The newest forgotten invocation, and what all forgotten ones had seen.
    forgotten: Option<(InvocationId, Token)>,
}

impl RunLookup {
    /// The answer to whoever asks, once there is one.
    pub(super) async fn answer(self) -> (RunAnswer, Bytes) {
        match self {
            Self::Known(awaited) => until_answered(awaited).await,
            Self::Never => (RunAnswer::NeverHeard, Bytes::new()),
            Self::Forgotten(token) => (RunAnswer::Forgotten { token }, Bytes::new()),
        }
    }
}

/// The answer of a run, once it is over.
pub(super) async fn until_answered(mut awaited: AnswerReceiver) -> (RunAnswer, Bytes) {
    // The sender is dropped without an answer only if its task panicked.
    let lost = || (RunAnswer::NotRun(NotRun::Lost(LossError::MayHaveRun)), Bytes::new());
    let Ok(kept) = awaited.wait_for(Option::is_some).await else { return lost() };
    kept.as_ref().map_or_else(lost, |kept| (kept.0.clone(), kept.1.clone()))
}

impl KeptRuns {
    /// A run arrives.
    pub(super) fn arrives(&mut self, run: RunId) -> Arrival {
        match self.runs.get(&run) {
            Some(Run::Known(awaited)) => Arrival::Known(RunLookup::Known(awaited.clone())),
            Some(Run::Buried) => Arrival::Known(RunLookup::Never),
            None => {
                let (answer, awaited) = watch::channel(None);
                self.runs.insert(run, Run::Known(awaited));
                Arrival::New(answer)
            }
        }
    }

    /// True if the run has arrived or is buried.
    pub(super) fn knows(&self, run: RunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// A run is asked for.
    pub(super) fn asked(&mut self, now: Monotonic, run: RunId) -> RunLookup {
        match (self.runs.get(&run), &self.forgotten) {
            (Some(Run::Known(awaited)), _) => RunLookup::Known(awaited.clone()),
            (None, Some((newest, token))) if run.invocation <= *newest => RunLookup::Forgotten(token.clone()),
            (Some(Run::Buried), _) => RunLookup::Never,
            (None, _) => {
                self.runs.insert(run, Run::Buried);
                self.grows(now, run, 0);
                RunLookup::Never
            }
        }
    }

    /// A run of this invocation, whichever owner sent it; of its last attempt if `attempt` is None.
    pub(super) fn find(&self, invocation: InvocationId, attempt: Option<u32>) -> Option<AnswerReceiver> {
        let is_it = |run: &RunId| run.invocation == invocation && attempt.is_none_or(|attempt| attempt == run.attempt);
        let found = self.runs.iter().filter_map(|(run, known)| match known {
            Run::Known(awaited) if is_it(run) => Some((run.attempt, awaited)),
            Run::Known(_) | Run::Buried => None,
        });
        found.max_by_key(|(attempt, _)| *attempt).map(|(_, awaited)| awaited.clone())
    }

    /// A run is over. Its answer goes to those who wait, and is kept if the run has ended; else nothing has run, and nothing is
    /// kept.
    pub(super) fn over(
        &mut self,
        now: Monotonic,
        run: RunId,
        answer: &watch::Sender<Option<StoredAnswer>>,
        (said, body): (RunAnswer, Bytes),
    ) {
        let (is_ended, bytes) = (matches!(said, RunAnswer::Ended { .. }), said.log_bytes() + body.len());
        answer.send_replace(Some(Arc::new((said, body))));
        if is_ended {
            self.grows(now, run, bytes);
        } else {
            self.runs.remove(&run);
        }
    }

    fn grows(&mut self, now: Monotonic, run: RunId, bytes: usize) {
        self.old.push_back((now.after(KEPT_FOR), run, bytes));
        self.bytes += bytes;
        while let Some((until, run, bytes)) = self.old.front().copied()
            && (until <= now || self.bytes > KEPT_BYTES_MAX || self.old.len() > KEPT_MAX)
        {
            self.old.pop_front();
            self.bytes -= bytes;
            let Some(Run::Known(awaited)) = self.runs.remove(&run) else { continue };
            let (newest, token) = self.forgotten.get_or_insert((run.invocation, Token::empty()));
            *newest = run.invocation.max(*newest);
            if let Some(kept) = &*awaited.borrow()
                && let RunAnswer::Ended { ended, .. } = &kept.0
            {
                token.join(&ended.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_invoke::invocation::RunTimes;
    use nigh_terms::{Epoch, Sequence, ShardId, Version};

    use super::*;
    use crate::wire::EndedHead;

    const NOW: Monotonic = Monotonic(5);

    fn run() -> RunId {
        RunId { invocation: InvocationId::now(), attempt: 1, term: 1, send: 0 }
    }

    fn end(runs: &mut KeptRuns, run: RunId, token: Token) {
        let Arrival::New(answer) = runs.arrives(run) else { panic!("it has come before") };
        let ended = EndedHead {
            id: run.invocation,
            failed: false,
            log_tail: Vec::new(),
            token,
            touched: Vec::new(),
            run: RunTimes::default(),
        };
        runs.over(NOW, run, &answer, (RunAnswer::Ended { ended, settled: true }, Bytes::new()));
    }

    #[test]
    fn an_answer_is_kept_for_who_asks_again_and_a_run_that_comes_twice_runs_once() {
        let (mut runs, run) = (KeptRuns::default(), run());
        end(&mut runs, run, Token::empty());
        assert!(matches!(runs.arrives(run), Arrival::Known(RunLookup::Known(awaited)) if awaited.borrow().is_some()));
        assert!(matches!(runs.asked(NOW, run), RunLookup::Known(awaited) if awaited.borrow().is_some()));
        assert!(matches!(runs.arrives(RunId { send: 1, ..run }), Arrival::New(_)), "sent anew it is another");
    }

    #[test]
    fn what_was_said_not_to_have_come_is_not_taken_when_it_comes() {
        let (mut runs, run) = (KeptRuns::default(), run());
        assert!(matches!(runs.asked(NOW, run), RunLookup::Never));
        assert!(matches!(runs.arrives(run), Arrival::Known(RunLookup::Never)));
        assert!(matches!(runs.asked(NOW, run), RunLookup::Never));
    }

    #[test]
    fn what_is_forgotten_is_never_taken_for_what_was_never_heard_of() {
        let (mut runs, first) = (KeptRuns::default(), run());
        let mut token = Token::empty();
        token.see(ShardId(3), Version { epoch: Epoch(1), sequence: Sequence(4) });
        end(&mut runs, first, token.clone());
        let later = NOW.after(KEPT_FOR);
        let second = run();
        assert!(matches!(runs.asked(later, second), RunLookup::Never), "a newer one");
        assert!(matches!(runs.asked(later, first), RunLookup::Forgotten(seen) if seen == token));
        assert!(matches!(runs.asked(later, second), RunLookup::Never));
    }

    #[test]
    fn one_that_did_not_begin_leaves_nothing() {
        let (mut runs, run) = (KeptRuns::default(), run());
        let Arrival::New(answer) = runs.arrives(run) else { panic!("it has come before") };
        runs.over(NOW, run, &answer, (RunAnswer::TermOver, Bytes::new()));
        assert!(matches!(runs.arrives(run), Arrival::New(_)));
    }
}
