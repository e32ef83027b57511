//! An open loop: requests are sent when they are due, whatever became of those before them.
//!
//! `Turns` gives one client its requests, each when it is due; `play` has several clients share a schedule. A request that finds
//! all clients busy is sent late. Its latency should count from when it was due, so that a slow server gets the same load as a
//! fast one (no coordinated omission). A schedule in which everything is due at once is a closed loop.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use crate::LabError;
use crate::instrument::parallel::joined;

/// How often a waiting client checks whether the load was stopped.
const LOOK: Duration = Duration::from_millis(100);
/// The kernel may wake a client so many nanoseconds later than asked; by default it is 50,000 (prctl(2), PR_SET_TIMERSLACK).
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// When a load begins and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// Due times count from here.
    pub(crate) begin: Instant,
    /// From here on nothing is sent, however much is due.
    pub(crate) end: Option<Instant>,
    /// Set to end the load: requests under way end, and nothing more is sent.
    pub(crate) stop: &'a AtomicBool,
}

impl Bounds<'_> {
    /// False if the load is stopped first.
    fn wait_until(&self, due: Instant) -> bool {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// A request that is due, for a client that is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) number: usize,
    pub(crate) due: Instant,
    /// When the client could take it: before `due` if the client waited for it.
    pub(crate) free: Instant,
    /// When the client begins to send it.
    pub(crate) sent: Instant,
}

impl Turn {
    /// How long after it was due it waited for a free client.
    pub(crate) fn waited(&self) -> Duration {
        self.free.saturating_duration_since(self.due)
    }

    /// How late it is sent although it was due and a client was free: the generator's own part.
    pub(crate) fn generator_late(&self) -> Duration {
        self.sent.saturating_duration_since(self.due.max(self.free))
    }
}

/// The requests of one client, each when it is due.
pub(crate) struct Turns<'a, I> {
    bounds: Bounds<'a>,
    schedule: I,
}

impl<'a, I: Iterator<Item = (usize, Duration)>> Turns<'a, I> {
    /// `schedule` has each request's number and when it is due. To be used by the thread that sends them.
    pub(crate) fn new(bounds: Bounds<'a>, schedule: I) -> Self {
        // If this fails, requests are sent later, which is measured.
        let _ = set_current_timer_slack(Some(TIMER_SLACK_NS));
        Self { bounds, schedule }
    }
}

impl<I: Iterator<Item = (usize, Duration)>> Iterator for Turns<'_, I> {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let free = Instant::now();
        let (number, after) = self.schedule.next()?;
        let due = self.bounds.begin + after;
        if self.bounds.end.is_some_and(|end| due.max(free) >= end) {
            return None;
        }
        self.bounds.wait_until(due).then(|| Turn { number, due, free, sent: Instant::now() })
    }
}

/// Has `clients` send the requests 0, 1, ..., which are due when `due` says, in this order; each is sent by whichever client is
/// free. None is sent from the first on for which `due` has no time. Returns what the clients made of the requests that were sent,
/// in the order of their numbers.
pub(crate) fn play<C, T>(
    clients: Vec<C>,
    bounds: Bounds<'_>,
    due: impl Fn(usize) -> Option<Duration> + Sync,
) -> Result<Vec<T>, LabError>
where
    C: FnMut(&Turn) -> T + Send,
    T: Send,
{
    let next = AtomicUsize::new(0);
    let work = |mut client: C| -> Result<Vec<(usize, T)>, LabError> {
        let schedule = std::iter::from_fn(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            due(number).map(|after| (number, after))
        });
        Ok(Turns::new(bounds, schedule).map(|turn| (turn.number, client(&turn))).collect())
    };
    let work = &work;
    let done = std::thread::scope(|scope| {
        joined(clients.into_iter().map(|client| scope.spawn(move || work(client))).collect())
    })?;
    let mut done: Vec<(usize, T)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_wait_for_a_client_and_the_generators_own_lateness_are_told_apart() {
        let begin = Instant::now();
        let turn = |due: u32, free: u32, sent: u32| {
            let [due, free, sent] = [due, free, sent].map(|ms| begin + MS * ms);
            Turn { number: 0, due, free, sent }
        };
        let of = |turn: Turn| (turn.waited(), turn.generator_late());
        assert_eq!(of(turn(10, 4, 10)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(of(turn(10, 4, 12)), (Duration::ZERO, MS * 2), "the client woke late");
        assert_eq!(of(turn(10, 17, 18)), (MS * 7, MS), "all clients were busy");
    }

    #[test]
    fn clients_share_a_schedule_and_each_request_is_sent_once_when_it_is_due() {
        let never = AtomicBool::new(false);
        let begin = Instant::now();
        let bounds = Bounds { begin, end: None, stop: &never };
        let client = move |turn: &Turn| (turn.number, turn.sent.duration_since(begin));
        let due = |number: usize| (number < 40).then(|| MS * number as u32);
        let sent = play(vec![client; 4], bounds, due).unwrap();
        assert_eq!(sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        assert!(sent.iter().all(|&(number, after)| after >= MS * number as u32), "{sent:?}");
    }

    #[test]
    fn what_is_due_at_once_is_sent_again_and_again_until_the_load_ends() {
        let stop = AtomicBool::new(false);
        let begin = Instant::now();
        let client = |turn: &Turn| {
            stop.store(turn.number == 2, Ordering::Relaxed);
            turn.number
        };
        let sent_until = |end: Option<Instant>| {
            stop.store(false, Ordering::Relaxed);
            play(vec![client], Bounds { begin, end, stop: &stop }, |_| Some(Duration::ZERO)).unwrap()
        };
        assert_eq!(sent_until(None), [0, 1, 2]);
        assert_eq!(sent_until(Some(begin + MS * 3_600_000)), [0, 1, 2]);
        assert!(sent_until(Some(begin)).is_empty());
    }
}
