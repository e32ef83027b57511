//! Watching connections for silence, and telling them when to end.
//!
//! A client may be silent in two ways that cost the node: it keeps a connection without asking anything (or stops in
//! the middle of a request's head), or it asks and does not take the answer, which holds its bytes in memory. Each
//! request and each answer begins the time anew; a head must come whole within its time; of an answer, the client must
//! take `LEAST_BYTES_PER_SECOND`.
//!
//! A connection only notes what it does, in a few words of memory (`Pulse`); no clock is read and no timer set for it.
//! One timer a listener looks at all of them now and then, so that a silence is found a look or two late.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use crate::closed_connections::{SILENT, SLOW_ANSWER, count_closed};
use crate::least_rate::LEAST_BYTES_PER_SECOND;
use crate::pulse::{ClientState, Order, Patience, Pulse};

/// How often the timer looks at the connections within the shortest of the limits.
const LOOKS_A_LIMIT: u32 = 4;
/// However short the limits are.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
/// So many entries are kept before those of ended connections are looked for; then twice as many as are alive.
const ENTRIES_MIN: usize = 64;
/// A connection between two requests of a busy client is not closed to make room: the client would come back at once.
const IDLE_MIN: Duration = Duration::from_millis(100);
/// The same of one whose client still takes a small answer, which may have to be sent again.
const STALLED_MIN: Duration = Duration::from_secs(1);

/// A connection as it was when last looked at.
#[derive(Debug)]
struct Entry {
    pulse: Weak<Pulse>,
    /// None before the first look, from which on its silence counts.
    beats: Option<u32>,
    taken: u64,
    silent: Duration,
}

impl Entry {
    /// Adds the time since the last look to the client's silence, or ends it.
    fn look(&mut self, pulse: &Pulse, state: ClientState, passed: Duration) {
        let (beats, taken) = (pulse.beats(), pulse.taken());
        let is_silent = match state {
            ClientState::Answered => false,
            ClientState::Asking(_) => self.beats == Some(beats),
            ClientState::Taking(_) => {
                let least = LEAST_BYTES_PER_SECOND as f64 * passed.as_secs_f64();
                self.beats.is_some() && ((taken - self.taken) as f64) < least
            }
        };
        self.silent = if is_silent { self.silent + passed } else { Duration::ZERO };
        (self.beats, self.taken) = (Some(beats), taken);
    }
}

#[derive(Debug)]
struct Connections {
    entries: Vec<Entry>,
    looked: Instant,
}

/// The connections of one listener.
#[derive(Debug)]
pub struct Watch {
    patience: Patience,
    connections: Mutex<Connections>,
}

impl Watch {
    /// A watch over no connection yet.
    #[must_use]
    pub fn new(patience: Patience) -> Self {
        Self { patience, connections: Mutex::new(Connections { entries: Vec::new(), looked: Instant::now() }) }
    }

    /// A further connection, which is watched as long as it holds this.
    pub fn add(&self) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::default());
        let entries = &mut self.connections.lock().entries;
        // Connections may end much faster than they are looked at. The vector grows by doubling, so that this
        // is done once in as many connections as are alive.
        if entries.len() >= ENTRIES_MIN && entries.len() == entries.capacity() {
            entries.retain(|entry| entry.pulse.strong_count() > 0);
        }
        entries.push(Entry { pulse: Arc::downgrade(&pulse), beats: None, taken: 0, silent: Duration::ZERO });
        pulse
    }

    /// Tells all connections.
    pub fn tell(&self, order: Order) {
        let connections = self.connections.lock();
        connections.entries.iter().filter_map(|entry| entry.pulse.upgrade()).for_each(|pulse| pulse.tell(order));
    }

    /// Closes connections that are silent for too long, as long as this is polled.
    pub async fn keep(&self) -> Infallible {
        let shortest = self.patience.first_head.min(self.patience.head).min(self.patience.send);
        let mut looks = tokio::time::interval((shortest / LOOKS_A_LIMIT).max(LOOK_EVERY_MIN));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look();
        }
    }

    /// Looks at all connections, and closes those that are silent for too long.
    fn look(&self) {
        let mut connections = self.connections.lock();
        let now = Instant::now();
        let passed = now.saturating_duration_since(connections.looked);
        connections.looked = now;
        connections.entries.retain_mut(|entry| {
            let Some(pulse) = entry.pulse.upgrade() else { return false };
            let state = pulse.state(self.patience);
            entry.look(&pulse, state, passed);
            if let ClientState::Asking(limit) | ClientState::Taking(limit) = state
                && entry.silent >= limit
            {
                // It is counted once: an order is never taken back, and later looks find it told.
                if pulse.is_open() {
                    let reason = if matches!(state, ClientState::Taking(_)) { SLOW_ANSWER } else { SILENT };
                    count_closed(reason);
                }
                tracing::debug!(silent = ?entry.silent, "a connection is closed: its client is silent or too slow");
                pulse.tell(Order::Close);
            }
            true
        });
    }

    /// The connection whose client has been silent longest while no request of it is being answered, and how long.
    /// None that was told to end.
    pub(crate) fn most_silent(&self) -> Option<(Duration, Arc<Pulse>)> {
        self.look();
        let connections = self.connections.lock();
        let idle = connections.entries.iter().filter(|entry| entry.silent >= IDLE_MIN).filter_map(|entry| {
            let pulse = entry.pulse.upgrade()?;
            if matches!(pulse.state(self.patience), ClientState::Taking(_)) && entry.silent < STALLED_MIN {
                return None;
            }
            pulse.is_idle().then_some((entry.silent, pulse))
        });
        // Of equals, the one that came first.
        idle.reduce(|most, next| if next.0 > most.0 { next } else { most })
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
    use std::task::{Context, Waker};

    use super::*;
    use crate::pulse::AnsweringGuard;

    const PATIENCE: Patience =
        Patience { first_head: Duration::from_secs(10), head: Duration::from_secs(30), send: Duration::from_secs(10) };

    fn order(pulse: &Pulse) -> Order {
        pulse.order(&Context::from_waker(Waker::noop()))
    }

    async fn look(watch: &Watch, seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        watch.look();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_head_is_closed_and_one_that_asks_again_and_again_is_not() {
        let watch = Watch::new(PATIENCE);
        let (silent, asking) = (watch.add(), watch.add());
        for _ in 0..5 {
            drop(AnsweringGuard::begin(&asking));
            look(&watch, 8).await;
        }
        assert_eq!((order(&silent), order(&asking)), (Order::Close, Order::Serve));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_must_come_sooner_than_the_next_ones() {
        let watch = Watch::new(PATIENCE);
        let (new, known) = (watch.add(), watch.add());
        drop(AnsweringGuard::begin(&known));
        for seconds in [0, 5, 5] {
            assert_eq!((order(&new), order(&known)), (Order::Serve, Order::Serve));
            look(&watch, seconds).await;
        }
        assert_eq!((order(&new), order(&known)), (Order::Close, Order::Serve));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_the_making_is_not_the_client_s_silence() {
        let watch = Watch::new(PATIENCE);
        let pulse = watch.add();
        let answering = AnsweringGuard::begin(&pulse);
        look(&watch, 1000).await;
        look(&watch, 1000).await;
        drop(answering);
        look(&watch, 29).await;
        assert_eq!(order(&pulse), Order::Serve);
        look(&watch, 29).await;
        look(&watch, 1).await;
        assert_eq!(order(&pulse), Order::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_or_a_byte_now_and_then_is_closed_and_one_at_the_least_rate_is_not() {
        let watch = Watch::new(PATIENCE);
        let clients = [0, 1, 4 * LEAST_BYTES_PER_SECOND as usize].map(|bytes| (watch.add(), bytes));
        let _answering = clients.each_ref().map(|(pulse, _)| AnsweringGuard::begin(pulse));
        look(&watch, 1).await;
        for _ in 0..10 {
            for (pulse, bytes) in &clients {
                if *bytes > 0 {
                    pulse.sent(*bytes);
                }
                pulse.waits_to_send();
            }
            look(&watch, 4).await;
        }
        assert_eq!(clients.each_ref().map(|(pulse, _)| order(pulse)), [Order::Close, Order::Close, Order::Serve]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_client_s_connection_between_two_requests_is_not_idle() {
        let watch = Watch::new(PATIENCE);
        let (busy, idle) = (watch.add(), watch.add());
        for pulse in [&busy, &idle] {
            drop(AnsweringGuard::begin(pulse));
        }
        look(&watch, 1).await;
        drop(AnsweringGuard::begin(&busy));
        tokio::time::advance(Duration::from_secs(1)).await;
        let (silent, pulse) = watch.most_silent().unwrap();
        assert!(Arc::ptr_eq(&pulse, &idle) && silent == Duration::from_secs(1), "{silent:?}");
        pulse.tell(Order::MakeRoom);
        assert!(watch.most_silent().is_none(), "one is busy, the other told");
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

    #[test]
    fn connections_that_have_ended_take_no_place() {
        let watch = Watch::new(PATIENCE);
        let alive: Vec<_> = (0..10).map(|_| watch.add()).collect();
        for _ in 0..10_000 {
            drop(watch.add());
        }
        assert!(watch.connections.lock().entries.capacity() <= 4 * ENTRIES_MIN);
        watch.look();
        assert_eq!(watch.connections.lock().entries.len(), alive.len());
    }
}
