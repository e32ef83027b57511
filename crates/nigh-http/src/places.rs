//! The places for connections that the listeners of a door share.
//!
//! A connection on which no request is being answered does not keep a place from the next client: when none is free, the
//! connection whose client has been silent longest is closed. Requests being answered are bounded by `shares`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::closed_connections::{ROOM, count_closed};
use crate::pulse::{Order, Patience};
use crate::watch::Watch;

/// A connection that was told to end has so long before another one is told, because its request may have just begun.
const END_TIME: Duration = Duration::from_millis(20);
/// The wait before another search for a connection that is idle.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);

/// A connection's place, which is free again when this is dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
    /// The open connections of the door, this one included; none if the door counts them itself.
    open: Option<Gauge>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.decrement(1.0);
        }
    }
}

/// The places.
#[derive(Debug)]
pub struct Places {
    free: Arc<Semaphore>,
    /// The door whose open connections are counted.
    door: Option<String>,
    /// The connections, by listener.
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl Places {
    /// So many places.
    #[must_use]
    pub fn new(connections_max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(connections_max)), door: None, watches: Mutex::default() }
    }

    /// The same, at a door whose open connections a metric shows: `s3`.
    #[must_use]
    pub fn of_door(connections_max: usize, door: &str) -> Self {
        Self { door: Some(door.to_owned()), ..Self::new(connections_max) }
    }

    /// A watch over the connections of a further listener.
    pub fn watch(&self, patience: Patience) -> Arc<Watch> {
        let watch = Arc::new(Watch::new(patience));
        let mut watches = self.watches.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        watch
    }

    /// Waits for a place; while none is free, ends connections that no request needs.
    pub(crate) async fn take(&self) -> Place {
        let permit = self.free_one().await;
        let open = self.door.clone().map(|door| metrics::gauge!("nigh_door_connections", "door" => door));
        if let Some(open) = &open {
            open.increment(1.0);
        }
        Place { _permit: permit, open }
    }

    async fn free_one(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
                return place;
            }
            let pause = if self.end_one() { END_TIME } else { SEARCH_PAUSE };
            // Nobody closes the semaphore.
            if let Ok(Ok(place)) = tokio::time::timeout(pause, Arc::clone(&self.free).acquire_owned()).await {
                return place;
            }
        }
    }

    /// Tells the connection whose client has been silent longest to end; false if there is none.
    fn end_one(&self) -> bool {
        let watches = self.watches.lock();
        let silent = watches.iter().filter_map(Weak::upgrade).filter_map(|watch| watch.most_silent());
        let most = silent.reduce(|most, next| if next.0 > most.0 { next } else { most });
        if let Some((_, pulse)) = &most {
            pulse.tell(Order::MakeRoom);
            count_closed(ROOM);
        }
        most.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::pulse::{AnsweringGuard, Pulse};

    const PATIENCE: Patience =
        Patience { first_head: Duration::from_secs(10), head: Duration::from_secs(30), send: Duration::from_secs(30) };

    fn order(pulse: &Pulse) -> Order {
        pulse.order(&Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_connection_gets_the_place_of_the_one_that_is_silent_longest() {
        let places = Places::new(3);
        let (tcp, unix) = (places.watch(PATIENCE), places.watch(PATIENCE));
        let (busy, first, second) = (tcp.add(), unix.add(), tcp.add());
        let _answering = AnsweringGuard::begin(&busy);
        let (_busy, of_first, _second) = (places.take().await, places.take().await, places.take().await);
        // A silence counts from the first look on.
        assert!(unix.most_silent().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(tcp.most_silent().is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        let next = places.take();
        tokio::pin!(next);
        assert!(tokio::time::timeout(Duration::from_millis(1), next.as_mut()).await.is_err());
        assert_eq!([order(&busy), order(&first), order(&second)], [Order::Serve, Order::MakeRoom, Order::Serve]);
        drop((of_first, first));
        drop(next.await);
    }

    #[tokio::test(start_paused = true)]
    async fn while_all_requests_are_being_answered_the_next_connection_waits() {
        let places = Places::new(1);
        let watch = places.watch(PATIENCE);
        let pulse = watch.add();
        let (place, answering) = (places.take().await, AnsweringGuard::begin(&pulse));
        let next = places.take();
        tokio::pin!(next);
        assert!(tokio::time::timeout(Duration::from_secs(3600), next.as_mut()).await.is_err());
        assert_eq!(order(&pulse), Order::Serve);
        drop(answering);
        assert!(tokio::time::timeout(Duration::from_secs(1), next.as_mut()).await.is_err());
        assert_eq!(order(&pulse), Order::MakeRoom);
        drop((place, pulse));
        drop(next.await);
    }
}
