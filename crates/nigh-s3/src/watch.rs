//! Watches connections for silence, and tells them when to end.
//!
//! Two kinds of silence cost the node: a client keeps a connection without sending a request (or stops in the middle of
//! a request's head), or a client asks for an object and does not take the answer, which keeps the object's bytes in
//! memory. A slow client is tolerated: each byte taken, each request and each answer restarts the time. A request's
//! head must arrive whole within its time.
//!
//! A connection only records what it does, in a few words of memory (`Pulse`); it reads no clock and sets no timer. One
//! timer per listener checks all connections periodically, so a silence is noticed one or two checks late.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Context;
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::{Instant, MissedTickBehavior};

/// How often the timer checks the connections within the shorter of the two limits.
const LOOKS_A_LIMIT: u32 = 4;
/// The shortest pause between two checks, however short the limits are.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
/// The number of entries at which entries of ended connections are removed for the first time. Afterwards they are
/// removed at twice the number of live connections.
const ENTRIES_MIN: usize = 64;

/// What a connection must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Order {
    /// Continue.
    Serve = 0,
    /// Finish the requests in progress, then end.
    Drain = 1,
    /// End at once.
    Close = 2,
}

/// The longest times that a client may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until a whole request head has arrived.
    pub(crate) head: Duration,
    /// Until the client takes a byte of the answer.
    pub(crate) send: Duration,
}

/// What one connection records of itself, and the order that it was given.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Increases with every sign of life.
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

    /// Records that a write made progress.
    pub(crate) fn sent(&self) {
        self.sending.store(false, Ordering::Relaxed);
        self.beat();
    }

    /// Records that a write waits for the client.
    pub(crate) fn waits_to_send(&self) {
        self.sending.store(true, Ordering::Relaxed);
    }

    /// What the connection must do. A new order wakes the task of `context`.
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

    /// How long the client may be silent in this state. None if the client waits for the node.
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

/// A connection, and its state at the last check.
#[derive(Debug)]
struct Entry {
    pulse: Weak<Pulse>,
    /// The value of `Pulse::beats` at the last check. None before the first check; silence counts from then on.
    beats: Option<u32>,
    silent: Duration,
}

impl Entry {
    /// Returns true if the connection has been silent for too long. `passed` is the time since the last check.
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
    /// A watch that has no connections yet.
    pub(crate) const fn new(patience: Patience) -> Self {
        Self { patience, entries: Mutex::new(Vec::new()) }
    }

    fn with_entries<T>(&self, f: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        f(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a connection, which is watched for as long as it holds the returned pulse.
    pub(crate) fn add(&self) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::default());
        self.with_entries(|entries| {
            // Connections may end much faster than they are checked. The vector grows by doubling, so entries are
            // removed only once per as many connections as are alive.
            if entries.len() >= ENTRIES_MIN && entries.len() == entries.capacity() {
                entries.retain(|entry| entry.pulse.strong_count() > 0);
            }
            entries.push(Entry { pulse: Arc::downgrade(&pulse), beats: None, silent: Duration::ZERO });
        });
        pulse
    }

    /// Gives all connections an order.
    pub(crate) fn tell(&self, order: Order) {
        self.with_entries(|entries| {
            entries.iter().filter_map(|entry| entry.pulse.upgrade()).for_each(|p| p.tell(order))
        });
    }

    /// Closes connections that are silent for too long. Works only while it is polled.
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
        // No timer is left that could check the connections.
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
