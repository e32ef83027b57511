//! The Lambda Runtime API server of one sandbox (Lambda developer guide, "Runtime API", version 2018-06-01).
//!
//! The server passes inputs and responses on over HTTP; `runtime_protocol` decides what is allowed when. The client is
//! the function's own process and is not trusted: connections and bodies are bounded, and an invalid request is refused
//! without any effect on the invocation, other sandboxes or Nigh.

mod body;
mod input;
mod response;
mod server;

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use hyper::body::Incoming;
use nigh_terms::{Clock, Monotonic};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::input::Dispatch;

use self::body::{ReadBody, read};
use self::input::Input;
use crate::runtime_protocol::{Protocol, State};
use crate::sandbox::SandboxEnd;

/// The largest response: Lambda's 6 MB and the 100 bytes that its own emulator adds for the frame.
pub const RESPONSE_BYTES_MAX: usize = 6 * 1024 * 1024 + 100;
/// The time that connections of an ended sandbox have to deliver what the sandbox sent.
const SETTLE: Duration = Duration::from_millis(50);

/// The result of an input.
#[derive(Debug)]
pub enum Reply {
    /// The handler's answer.
    Response(Bytes),
    /// The handler failed, and the runtime client sent an error object.
    Error {
        /// The error object, unchanged and unchecked.
        payload: Bytes,
        /// The error's type, from the header; none without the header.
        error_type: Option<String>,
    },
    /// The answer is larger than `RESPONSE_BYTES_MAX`.
    TooLarge,
    /// The sandbox ended before it responded.
    Ended {
        /// How the sandbox ended.
        end: SandboxEnd,
        /// False if the sandbox had not received the input: nothing of the invocation has run.
        taken: bool,
    },
}

/// A reply and the time at which it was complete.
#[derive(Debug)]
pub struct TimedReply {
    /// When its last byte arrived.
    pub at: Monotonic,
    /// The reply.
    pub reply: Reply,
}

/// How an initialisation ended.
#[derive(Debug)]
pub enum InitOutcome {
    /// The sandbox asked for its first input.
    Ready,
    /// The runtime client reported a failure with an error object.
    Failed {
        /// The error object, unchanged and unchecked.
        payload: Bytes,
        /// The error's type, from the header; none without the header.
        error_type: Option<String>,
    },
    /// The sandbox ended.
    Ended(SandboxEnd),
}

/// Called when a response has arrived, before its sender is told. From then on the sandbox runs no invocation.
pub type OnAnswer = Box<dyn Fn() + Send + Sync>;

struct Seats {
    protocol: Protocol,
    /// The waiting request for the next input. A later request replaces it.
    poll: Option<oneshot::Sender<Input>>,
    /// The input that waits for a request.
    assigned: Option<Dispatch>,
    init: Option<oneshot::Sender<InitOutcome>>,
    reply: Option<oneshot::Sender<TimedReply>>,
    /// Cancels the reading of the present response. A later response replaces it.
    reading: CancellationToken,
}

struct RuntimeApiState {
    seats: Mutex<Seats>,
    clock: Arc<dyn Clock>,
    on_answer: OnAnswer,
    connections: TaskTracker,
    /// Held while a body is read, so that a sandbox costs the memory of one response, whatever the number of its
    /// connections.
    body: tokio::sync::Mutex<()>,
}

impl RuntimeApiState {
    /// Makes the body for the request that asked for an input.
    fn input(self: &Arc<Self>, dispatch: Dispatch) -> Input {
        let shared = Arc::clone(self);
        Input::new(dispatch, Box::new(move |dispatch| shared.give_back(dispatch)))
    }

    /// The request that got `dispatch` has closed. The input waits for the next request.
    fn give_back(&self, dispatch: Dispatch) {
        let mut seats = self.seats.lock();
        if seats.protocol.give_back(dispatch.id) {
            seats.assigned = Some(dispatch);
        }
    }

    /// Reads `body` and ends the reading of an earlier one. None if a later response replaces this one.
    async fn read(&self, body: Incoming) -> Option<Result<ReadBody, hyper::Error>> {
        let mine = CancellationToken::new();
        let earlier = std::mem::replace(&mut self.seats.lock().reading, mine.clone());
        earlier.cancel();
        let read = async {
            let _alone = self.body.lock().await;
            read(body).await
        };
        tokio::select! {
            biased;
            () = mine.cancelled() => None,
            body = read => Some(body),
        }
    }
}

/// The Runtime API of one sandbox.
#[derive(Clone)]
pub struct RuntimeApi {
    shared: Arc<RuntimeApiState>,
}

impl RuntimeApi {
    /// An API without a listener, and the receiver of the initialisation's outcome.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, on_answer: OnAnswer) -> (Self, oneshot::Receiver<InitOutcome>) {
        let (init, initialised) = oneshot::channel();
        let seats = Seats {
            protocol: Protocol::default(),
            poll: None,
            assigned: None,
            init: Some(init),
            reply: None,
            reading: CancellationToken::new(),
        };
        let shared = RuntimeApiState {
            seats: Mutex::new(seats),
            clock,
            on_answer,
            connections: TaskTracker::new(),
            body: tokio::sync::Mutex::default(),
        };
        (Self { shared: Arc::new(shared) }, initialised)
    }

    /// Serves on `listener`, in its own tasks, until `until` is cancelled.
    pub fn serve(&self, listener: TcpListener, until: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            tokio::select! {
                () = server::accept(&shared, &listener, &until) => {}
                () = until.cancelled() => {}
            }
        });
    }

    /// Gives the sandbox its next input. The result comes through the receiver. `None` if the sandbox cannot take an
    /// input now.
    #[must_use]
    pub fn dispatch(&self, dispatch: Dispatch) -> Option<oneshot::Receiver<TimedReply>> {
        let mut seats = self.shared.seats.lock();
        if !seats.protocol.assign(dispatch.id) {
            return None;
        }
        let (reply, replied) = oneshot::channel();
        seats.reply = Some(reply);
        // If the waiting request's connection has closed, the input waits for the next request.
        match seats.poll.take() {
            Some(poll) => match poll.send(self.shared.input(dispatch)) {
                Ok(()) => drop(seats.protocol.next()),
                // The input is taken while the seats are locked: its drop would lock them again.
                Err(mut input) => seats.assigned = input.take(),
            },
            None => seats.assigned = Some(dispatch),
        }
        Some(replied)
    }

    /// Whether this API knows that the sandbox has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.seats.lock().protocol.state() == State::Ended
    }

    /// The sandbox's process has ended. What it sent before its end still counts.
    #[boxed]
    pub async fn ended(&self, end: SandboxEnd) {
        // The sandbox's sockets are closed, so the connections' tasks end soon.
        tokio::task::yield_now().await;
        self.shared.connections.close();
        let _ = tokio::time::timeout(SETTLE, self.shared.connections.wait()).await;
        self.end(end);
    }

    /// The sandbox must end. What it sends from now on is ignored.
    pub fn end(&self, end: SandboxEnd) {
        let at = self.shared.clock.monotonic();
        let mut seats = self.shared.seats.lock();
        let was = seats.protocol.end();
        seats.poll = None;
        seats.assigned = None;
        if let Some(init) = seats.init.take() {
            let _ = init.send(InitOutcome::Ended(end.clone()));
        }
        if let Some(reply) = seats.reply.take() {
            let taken = matches!(was, State::Running(_));
            let _ = reply.send(TimedReply { at, reply: Reply::Ended { end, taken } });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http::StatusCode;
    use http::header::HeaderValue;
    use http_body_util::BodyExt as _;
    use nigh_terms::{InvocationId, Timestamp};

    use super::server::next;
    use super::*;

    #[tokio::test]
    async fn an_input_handed_to_a_request_that_has_gone_waits_for_the_next_one() {
        let (api, _initialised) = RuntimeApi::new(Arc::new(nigh_terms::SystemClock::new()), Box::new(|| {}));
        let mut first = Box::pin(next(&api.shared));
        assert!(first.as_mut().now_or_never().is_none());
        let dispatch = |id| Dispatch {
            id,
            deadline: Timestamp(1),
            function_arn: HeaderValue::from_static("arn"),
            client_context: None,
            trace: None,
            payload: Bytes::from_static(b"7"),
        };
        let _replied = api.dispatch(dispatch(InvocationId::now())).unwrap();
        // The first connection closes with the input, and the next one closes before it writes the response.
        drop(first);
        let unsent = next(&api.shared).await;
        drop(unsent);
        let taken = next(&api.shared).await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(taken, "7");
        // The input was taken, so it does not run twice.
        assert_eq!(next(&api.shared).await.status(), StatusCode::FORBIDDEN);
    }
}
