//! What a connection of a door records of itself for `watch`, and the order that it gets: a few words of memory.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;

/// What a connection is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Order {
    /// Go on.
    Serve = 0,
    /// End at once if no request is being answered, else behind the answer.
    MakeRoom = 1,
    /// Finish what is under way.
    Drain = 2,
    /// End at once.
    Close = 3,
}

/// How long a client may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until the first whole request head of a connection has arrived.
    pub first_head: Duration,
    /// Until the next one has arrived.
    pub head: Duration,
    /// How long the client may take less of an answer than the least rate.
    pub send: Duration,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientState {
    /// It has asked, and the node has to act.
    Answered,
    /// It has to send a request's head. It must do so within this time.
    Asking(Duration),
    /// It has to take what is sent to it.
    Taking(Duration),
}

/// What one connection records of itself, and the order that it gets.
#[derive(Debug, Default)]
pub struct Pulse {
    beats: AtomicU32,
    taken: AtomicU64,
    /// A client may send its next request while the answer before it is still being sent.
    answering: AtomicU32,
    sending: AtomicBool,
    order: AtomicU8,
    task: AtomicWaker,
}

impl Pulse {
    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// The client has taken so many bytes.
    pub fn sent(&self, bytes: usize) {
        self.sending.store(false, Ordering::Relaxed);
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.beat();
    }

    /// A write waits for the client to take something.
    pub fn waits_to_send(&self) {
        self.sending.store(true, Ordering::Relaxed);
    }

    /// What the connection is to do; a later order wakes the task of `context`.
    pub fn order(&self, context: &Context<'_>) -> Order {
        self.task.register(context.waker());
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::MakeRoom,
            2 => Order::Drain,
            _ => Order::Close,
        }
    }

    /// Gives an order; none is taken back.
    pub fn tell(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.task.wake();
    }

    /// Runs `connection` as ordered; `drain` lets it finish the request that is under way, and no further one.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn run<C: Future<Output = Result<(), E>>, E>(
        &self,
        mut connection: Pin<&mut C>,
        drain: impl Fn(Pin<&mut C>),
    ) -> Result<(), E> {
        let mut drains = false;
        poll_fn(|context| {
            match self.order(context) {
                Order::Close => return Poll::Ready(Ok(())),
                Order::MakeRoom if !self.is_answering() => return Poll::Ready(Ok(())),
                Order::MakeRoom | Order::Drain if !drains => {
                    drain(connection.as_mut());
                    drains = true;
                }
                Order::MakeRoom | Order::Drain | Order::Serve => {}
            }
            connection.as_mut().poll(context)
        })
        .await
    }

    /// Waits for `handshake`, which comes before the first request; none if the connection is to end before.
    pub async fn before_requests<H: Future>(&self, mut handshake: Pin<&mut H>) -> Option<H::Output> {
        poll_fn(|context| match self.order(context) {
            Order::Serve => handshake.as_mut().poll(context).map(Some),
            Order::MakeRoom | Order::Drain | Order::Close => Poll::Ready(None),
        })
        .await
    }

    /// Grows with everything that shows life.
    pub(crate) fn beats(&self) -> u32 {
        self.beats.load(Ordering::Relaxed)
    }

    /// How many bytes the client has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Relaxed) > 0
    }

    /// No request is being answered, and no order was given.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_answering() && self.order.load(Ordering::Relaxed) == Order::Serve as u8
    }

    /// Where the client stands.
    pub(crate) fn state(&self, patience: Patience) -> ClientState {
        if self.sending.load(Ordering::Relaxed) {
            ClientState::Taking(patience.send)
        } else if self.is_answering() {
            ClientState::Answered
        } else if self.beats() == 0 {
            ClientState::Asking(patience.first_head)
        } else {
            ClientState::Asking(patience.head)
        }
    }
}

/// Marks a request whose answer the node is preparing: while this exists, the client waits and does not count as silent.
#[derive(Debug)]
pub struct AnsweringGuard(Arc<Pulse>);

impl AnsweringGuard {
    /// Begins when the whole head of a request has arrived.
    pub fn begin(pulse: &Arc<Pulse>) -> Self {
        pulse.answering.fetch_add(1, Ordering::Relaxed);
        pulse.beat();
        Self(Arc::clone(pulse))
    }
}

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        self.0.beat();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_to_make_room_ends_at_once_or_behind_its_answer() {
        let pulse = Arc::new(Pulse::default());
        let answering = AnsweringGuard::begin(&pulse);
        pulse.tell(Order::MakeRoom);
        let drained = AtomicBool::new(false);
        let connection = std::pin::pin!(std::future::pending::<Result<(), Infallible>>());
        let run = pulse.run(connection, |_| drained.store(true, Ordering::Relaxed));
        tokio::pin!(run);
        assert!(tokio::time::timeout(Duration::from_secs(1), run.as_mut()).await.is_err());
        assert!(drained.load(Ordering::Relaxed));
        drop(answering);
        pulse.task.wake();
        tokio::time::timeout(Duration::from_secs(1), run).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_order_wakes_the_connection() {
        let pulse = Arc::new(Pulse::default());
        let connection = Arc::clone(&pulse);
        let waiting = tokio::spawn(poll_fn(move |context| match connection.order(context) {
            Order::Drain => Poll::Ready(()),
            _ => Poll::Pending,
        }));
        tokio::task::yield_now().await;
        pulse.tell(Order::Drain);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    }
}
