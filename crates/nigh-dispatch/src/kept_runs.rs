//! Runs by their names, at a node and at an owner to whom others hand them: those that go on, and the answers of those that ended, for whoever asks again.
//!
//! Pure but for the channel by which those who wait hear of an end. What is asked for and was never heard of is buried: it
//! will not be taken when it still comes, so that who asked may send it elsewhere. Of what is forgotten it is remembered
//! that something was, so that it is never taken for what was never heard of.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_terms::{InvocationId, Monotonic, Token};
use tokio::sync::watch;

use super::wire::{RunAnswer, RunId};

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

/// What becomes of a run that comes.
pub(super) enum Arrival {
    /// It is to be run; its answer goes here.
    New(watch::Sender<Option<StoredAnswer>>),
    /// It has come before.
    Known(AnswerReceiver),
    /// It was said of it that it had not come.
    Buried,
}

/// What is known of a run that is asked for.
pub(super) enum RunLookup {
    Known(AnswerReceiver),
    /// It is buried now.
    Never,
    /// It may have run; this is what all that are forgotten had seen.
    Forgotten(Token),
}

/// See the module.
#[derive(Default)]
pub(super) struct KeptRuns {
    runs: HashMap<RunId, Run>,
    /// Those that have ended, or are buried, in that order, with their bytes.
    old: VecDeque<(Monotonic, RunId, usize)>,
    bytes: usize,
    /// The newest invocation that was forgotten, and what all of them had seen.
    forgotten: Option<(InvocationId, Token)>,
}

impl KeptRuns {
    /// A run comes.
    pub(super) fn arrives(&mut self, run: RunId) -> Arrival {
        match self.runs.get(&run) {
            Some(Run::Known(awaited)) => Arrival::Known(awaited.clone()),
            Some(Run::Buried) => Arrival::Buried,
            None => {
                let (answer, awaited) = watch::channel(None);
                self.runs.insert(run, Run::Known(awaited));
                Arrival::New(answer)
            }
        }
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

    /// A sending of an invocation that goes on, or has ended, whoever sent it; of its last attempt, if none is named.
    pub(super) fn find(&self, invocation: InvocationId, attempt: Option<u32>) -> Option<AnswerReceiver> {
        let is_it = |run: &RunId| run.invocation == invocation && attempt.is_none_or(|attempt| attempt == run.attempt);
        let found = self.runs.iter().filter_map(|(run, known)| match known {
            Run::Known(awaited) if is_it(run) => Some((run.attempt, awaited)),
            Run::Known(_) | Run::Buried => None,
        });
        found.max_by_key(|(attempt, _)| *attempt).map(|(_, awaited)| awaited.clone())
    }

    /// A run has ended, with an answer of so many bytes.
    pub(super) fn ended(&mut self, now: Monotonic, run: RunId, bytes: usize) {
        self.grows(now, run, bytes);
    }

    /// A run has not begun: nothing is kept of it.
    pub(super) fn not_run(&mut self, run: RunId) {
        self.runs.remove(&run);
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
    use nigh_terms::{Epoch, Sequence, ShardId, Version};

    use super::super::wire::EndedHead;
    use super::*;
    use nigh_invoke::invocation::RunTimes;

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
        answer.send_replace(Some(Arc::new((RunAnswer::Ended { ended, settled: true }, Bytes::new()))));
        runs.ended(NOW, run, 0);
    }

    #[test]
    fn an_answer_is_kept_for_who_asks_again_and_a_run_that_comes_twice_runs_once() {
        let (mut runs, run) = (KeptRuns::default(), run());
        end(&mut runs, run, Token::empty());
        assert!(matches!(runs.arrives(run), Arrival::Known(awaited) if awaited.borrow().is_some()));
        assert!(matches!(runs.asked(NOW, run), RunLookup::Known(awaited) if awaited.borrow().is_some()));
        assert!(matches!(runs.arrives(RunId { send: 1, ..run }), Arrival::New(_)), "sent anew it is another");
    }

    #[test]
    fn what_was_said_not_to_have_come_is_not_taken_when_it_comes() {
        let (mut runs, run) = (KeptRuns::default(), run());
        assert!(matches!(runs.asked(NOW, run), RunLookup::Never));
        assert!(matches!(runs.arrives(run), Arrival::Buried));
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
        assert!(matches!(runs.arrives(run), Arrival::New(_)));
        runs.not_run(run);
        assert!(matches!(runs.arrives(run), Arrival::New(_)));
    }
}
