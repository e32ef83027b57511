//! Watching connections for silence, and telling them when to end.
//!
//! A client may be silent in two ways that cost the node: it keeps a connection without asking anything (or stops in
//! the middle of a request's head), or it asks and does not take the answer, which holds the object's bytes in memory.
//! A slow client is tolerated: each byte taken, each request and each answer begins the time anew; a head must
//! come whole within its time.
//!
//! A connection only notes what it does, in a few words of memory (`Pulse`); no clock is read and no timer set for it.
//! One timer a listener looks at all of them now and then, so that a silence is found a look or two late.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Context;
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::{Instant, MissedTickBehavior};

/// How often the timer looks at the connections within the shorter of the two limits.
const LOOKS_A_LIMIT: u32 = 4;
/// However short the limits are.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
/// So many entries are kept before those of ended connections are looked for; then twice as many as are alive.
const ENTRIES_MIN: usize = 64;

/// What a connection is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Order {
    /// Go on.
    Serve = 0,
    /// Finish what is under way.
    Drain = 1,
    /// End at once.
    Close = 2,
}

/// How long a client may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until a whole request head has arrived.
    pub(crate) head: Duration,
    /// Until the client takes a byte of the answer.
    pub(crate) send: Duration,
}

/// What one connection records of itself, and the order that it gets.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Grows with everything that shows life.
    beats: AtomicU32,
    answering: AtomicBool,
    sending: AtomicBool,
    order: AtomicU8,
    task: AtomicWaker,
}

impl Pulse {
    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// A write has gone on.
    pub(crate) fn sent(&self) {
        self.sending.store(false, Ordering::Relaxed);
        self.beat();
    }

    /// A write waits for the client to take something.
    pub(crate) fn waits_to_send(&self) {
        self.sending.store(true, Ordering::Relaxed);
    }

    /// What the connection is to do; a later order wakes the task of `context`.
    pub(crate) fn order(&self, context: &Context<'_>) -> Order {
        self.task.register(context.waker());
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Drain,
            _ => Order::Close,
        }
    }

    fn tell(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.task.wake();
    }

    /// How long the client may be silent in this state; none if the node has to act.
    fn limit(&self, patience: Patience) -> Option<Duration> {
        if self.sending.load(Ordering::Relaxed) {
            Some(patience.send)
        } else {
            (!self.answering.load(Ordering::Relaxed)).then_some(patience.head)
        }
    }
}

/// Marks a request whose answer the node is preparing: while this exists, the client waits and does not count as silent.
#[derive(Debug)]
pub(crate) struct AnsweringGuard(Arc<Pulse>);

impl AnsweringGuard {
    /// Begins when the whole head of a request has arrived.
    pub(crate) fn begin(pulse: &Arc<Pulse>) -> Self {
        pulse.answering.store(true, Ordering::Relaxed);
        pulse.beat();
        Self(Arc::clone(pulse))
    }
}

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.0.answering.store(false, Ordering::Relaxed);
        self.0.beat();
    }
}

/// A connection as it was when last looked at.
#[derive(Debug)]
struct Entry {
    pulse: Weak<Pulse>,
    /// None before the first look, from which on its silence counts.
    beats: Option<u32>,
    silent: Duration,
}

impl Entry {
    /// Whether it has been silent for too long, `passed` after the last look.
    fn is_too_silent(&mut self, beats: u32, limit: Option<Duration>, passed: Duration) -> bool {
        let Some(limit) = limit.filter(|_| self.beats == Some(beats)) else {
            (self.beats, self.silent) = (Some(beats), Duration::ZERO);
            return false;
        };
        self.silent += passed;
        self.silent >= limit
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Watch {
    patience: Patience,
    entries: Mutex<Vec<Entry>>,
}

impl Watch {
    /// A watch over no connection yet.
    pub(crate) const fn new(patience: Patience) -> Self {
        Self { patience, entries: Mutex::new(Vec::new()) }
    }

    fn with_entries<T>(&self, f: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        f(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A further connection, which is watched as long as it holds this.
    pub(crate) fn add(&self) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::default());
        self.with_entries(|entries| {
            // Connections may end much faster than they are looked at. The vector grows by doubling, so that this
            // is done once in as many connections as are alive.
            if entries.len() >= ENTRIES_MIN && entries.len() == entries.capacity() {
                entries.retain(|entry| entry.pulse.strong_count() > 0);
            }
            entries.push(Entry { pulse: Arc::downgrade(&pulse), beats: None, silent: Duration::ZERO });
        });
        pulse
    }

    /// Tells all connections.
    pub(crate) fn tell(&self, order: Order) {
        self.with_entries(|entries| {
            entries.iter().filter_map(|entry| entry.pulse.upgrade()).for_each(|p| p.tell(order))
        });
    }

    /// Closes connections that are silent for too long, as long as this is polled.
    pub(crate) async fn keep(&self) -> Infallible {
        let every = (self.patience.head.min(self.patience.send) / LOOKS_A_LIMIT).max(LOOK_EVERY_MIN);
        let mut looks = tokio::time::interval(every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            let now = looks.tick().await;
            self.look(now.saturating_duration_since(last));
            last = now;
        }
    }

    fn look(&self, passed: Duration) {
        self.with_entries(|entries| {
            entries.retain_mut(|entry| {
                let Some(pulse) = entry.pulse.upgrade() else { return false };
                let beats = pulse.beats.load(Ordering::Relaxed);
                if entry.is_too_silent(beats, pulse.limit(self.patience), passed) {
                    tracing::debug!(silent = ?entry.silent, "a connection to the S3 door is closed: its client is silent");
                    pulse.tell(Order::Close);
                }
                true
            });
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // No timer is left that could look at it.
        self.tell(Order::Close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { head: Duration::from_secs(30), send: Duration::from_secs(10) };

    fn order(pulse: &Pulse) -> Order {
        pulse.order(&Context::from_waker(std::task::Waker::noop()))
    }

    fn look(watch: &Watch, seconds: u64) {
        watch.look(Duration::from_secs(seconds));
    }

    #[test]
    fn a_client_that_sends_no_head_is_closed_and_one_that_asks_again_and_again_is_not() {
        let watch = Watch::new(PATIENCE);
        let (silent, asking) = (watch.add(), watch.add());
        for _ in 0..5 {
            drop(AnsweringGuard::begin(&asking));
            look(&watch, 8);
        }
        assert_eq!((order(&silent), order(&asking)), (Order::Close, Order::Serve));
    }

    #[test]
    fn an_answer_in_the_making_is_not_the_client_s_silence() {
        let watch = Watch::new(PATIENCE);
        let pulse = watch.add();
        let answering = AnsweringGuard::begin(&pulse);
        look(&watch, 1000);
        look(&watch, 1000);
        drop(answering);
        look(&watch, 29);
        assert_eq!(order(&pulse), Order::Serve);
        look(&watch, 29);
        look(&watch, 1);
        assert_eq!(order(&pulse), Order::Close);
    }

    #[test]
    fn a_client_that_takes_nothing_is_closed_and_one_that_takes_little_is_not() {
        let watch = Watch::new(PATIENCE);
        let (silent, slow) = (watch.add(), watch.add());
        let _answering = (AnsweringGuard::begin(&silent), AnsweringGuard::begin(&slow));
        look(&watch, 1);
        for _ in 0..10 {
            silent.waits_to_send();
            slow.sent();
            slow.waits_to_send();
            look(&watch, 4);
        }
        assert_eq!((order(&silent), order(&slow)), (Order::Close, Order::Serve));
    }

    #[test]
    fn an_order_is_never_taken_back() {
        let watch = Watch::new(PATIENCE);
        let pulse = watch.add();
        watch.tell(Order::Close);
        watch.tell(Order::Drain);
        assert_eq!(order(&pulse), Order::Close);
    }

    #[test]
    fn without_a_watch_there_are_no_connections() {
        let watch = Watch::new(PATIENCE);
        let pulse = watch.add();
        drop(watch);
        assert_eq!(order(&pulse), Order::Close);
    }

    #[tokio::test]
    async fn an_order_wakes_the_connection() {
        let watch = Watch::new(PATIENCE);
        let pulse = watch.add();
        let waiting = tokio::spawn(std::future::poll_fn(move |context| match pulse.order(context) {
            Order::Drain => std::task::Poll::Ready(()),
            _ => std::task::Poll::Pending,
        }));
        tokio::task::yield_now().await;
        watch.tell(Order::Drain);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    }

    #[test]
    fn connections_that_have_ended_take_no_place() {
        let watch = Watch::new(PATIENCE);
        let alive: Vec<_> = (0..10).map(|_| watch.add()).collect();
        for _ in 0..10_000 {
            drop(watch.add());
        }
        assert!(watch.with_entries(|entries| entries.capacity()) <= 4 * ENTRIES_MIN);
        look(&watch, 1);
        assert_eq!(watch.with_entries(|entries| entries.len()), alive.len());
    }
}
