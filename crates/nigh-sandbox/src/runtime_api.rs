//! The Lambda Runtime API server of one sandbox (Lambda developer guide, "Runtime API", version 2018-06-01).
//!
//! It speaks HTTP and hands inputs and answers over; what is allowed when is decided by `runtime_protocol`. Its client
//! is the function's own process, so nothing that arrives is trusted: connections and bodies are bounded, and a
//! request that does not fit is refused without any effect on the invocation, other sandboxes or Nigh.

mod body;
mod response;
mod server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use hyper::body::Incoming;
use nigh_terms::{Clock, InvocationId, Monotonic, Timestamp};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::body::{ReadBody, read};
use crate::runtime_input::Input;
use crate::runtime_protocol::{Protocol, State};
use crate::sandbox::SandboxEnd;

/// The largest answer (Lambda's 6 MB and what its own emulator adds for the frame).
pub const RESPONSE_BYTES_MAX: usize = 6 * 1024 * 1024 + 100;
/// How long the connections of an ended sandbox may take to deliver what it had sent.
const SETTLE: Duration = Duration::from_millis(50);

/// One input for a sandbox.
#[derive(Debug)]
pub struct Dispatch {
    /// The invocation.
    pub id: InvocationId,
    /// When the sandbox will be ended.
    pub deadline: Timestamp,
    /// The function's ARN.
    pub function_arn: HeaderValue,
    /// Lambda's `ClientContext`.
    pub client_context: Option<HeaderValue>,
    /// The handler's input.
    pub payload: Bytes,
}

/// What became of an input.
#[derive(Debug)]
pub enum Reply {
    /// The handler's answer.
    Response(Bytes),
    /// The handler raised: the runtime client's error object, as it came.
    Error {
        /// The object, not checked.
        payload: Bytes,
        /// The error's type, from the header.
        error_type: Option<String>,
    },
    /// The answer is larger than `RESPONSE_BYTES_MAX`.
    TooLarge,
    /// The sandbox ended before it answered.
    Ended {
        /// How.
        end: SandboxEnd,
        /// False if it had not got the input yet: nothing of the invocation has run.
        taken: bool,
    },
}

/// A reply and when it was whole.
#[derive(Debug)]
pub struct TimedReply {
    /// The time of its last byte.
    pub at: Monotonic,
    /// The reply.
    pub reply: Reply,
}

/// How an initialisation ended.
#[derive(Debug)]
pub enum InitOutcome {
    /// The sandbox asked for its first input.
    Ready,
    /// It said that it cannot: the runtime client's error object, as it came.
    Failed {
        /// The object, not checked.
        payload: Bytes,
        /// The error's type, from the header.
        error_type: Option<String>,
    },
    /// It ended.
    Ended(SandboxEnd),
}

/// Called when an answer has come, before its sender learns that: from then on the sandbox runs no invocation.
pub type OnAnswer = Box<dyn Fn() + Send + Sync>;

struct Seats {
    protocol: Protocol,
    /// The request for the next input that waits; a later one takes its place.
    poll: Option<oneshot::Sender<Input>>,
    /// The input that waits for a request.
    assigned: Option<Dispatch>,
    init: Option<oneshot::Sender<InitOutcome>>,
    reply: Option<oneshot::Sender<TimedReply>>,
    /// Ends the reading of the answer that is being read; a later one takes its place.
    reading: CancellationToken,
}

struct RuntimeApiState {
    seats: Mutex<Seats>,
    clock: Arc<dyn Clock>,
    on_answer: OnAnswer,
    connections: TaskTracker,
    /// Held while a body is read: a sandbox costs one answer's memory, however many connections it has.
    body: tokio::sync::Mutex<()>,
}

impl RuntimeApiState {
    /// `dispatch` on its way to a request that asked for it.
    fn input(self: &Arc<Self>, dispatch: Dispatch) -> Input {
        let shared = Arc::clone(self);
        Input::new(dispatch, Box::new(move |dispatch| shared.give_back(dispatch)))
    }

    /// The request that got `dispatch` has gone with it: it waits for the next one.
    fn give_back(&self, dispatch: Dispatch) {
        let mut seats = self.seats.lock();
        if seats.protocol.give_back(dispatch.id) {
            seats.assigned = Some(dispatch);
        }
    }

    /// Reads `body` in the place of another that is being read; none if a later one takes its place.
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
    /// An API that nobody can reach yet, and what tells of the initialisation's end.
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

    /// Serves on `listener`, in tasks of its own, until `until` is cancelled.
    pub fn serve(&self, listener: TcpListener, until: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            tokio::select! {
                () = server::accept(&shared, &listener, &until) => {}
                () = until.cancelled() => {}
            }
        });
    }

    /// Gives the sandbox its next input. What becomes of it comes through the receiver; `None` if the sandbox cannot
    /// have one now.
    #[must_use]
    pub fn dispatch(&self, dispatch: Dispatch) -> Option<oneshot::Receiver<TimedReply>> {
        let mut seats = self.shared.seats.lock();
        if !seats.protocol.assign(dispatch.id) {
            return None;
        }
        let (reply, replied) = oneshot::channel();
        seats.reply = Some(reply);
        // A poll whose connection has gone cannot take the input: it then waits for the next one.
        match seats.poll.take() {
            Some(poll) => match poll.send(self.shared.input(dispatch)) {
                Ok(()) => drop(seats.protocol.next()),
                // Taken here, with the seats locked, it does not give itself back.
                Err(mut input) => seats.assigned = input.take(),
            },
            None => seats.assigned = Some(dispatch),
        }
        Some(replied)
    }

    /// Whether the sandbox has ended, as far as is known here.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.seats.lock().protocol.state() == State::Ended
    }

    /// The sandbox's process has ended. What it sent before that still counts.
    pub async fn ended(&self, end: SandboxEnd) {
        // Its sockets are closed; the connections' tasks come to their ends by themselves.
        tokio::task::yield_now().await;
        self.shared.connections.close();
        let _ = tokio::time::timeout(SETTLE, self.shared.connections.wait()).await;
        self.end(end);
    }

    /// The sandbox is to end: nothing that it sends counts from here on.
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
    use http_body_util::BodyExt as _;

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
            payload: Bytes::from_static(b"7"),
        };
        let _replied = api.dispatch(dispatch(InvocationId::now())).unwrap();
        // Its connection goes with the input in its hands, and the next one's goes before the answer is written.
        drop(first);
        let unsent = next(&api.shared).await;
        drop(unsent);
        let taken = next(&api.shared).await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(taken, "7");
        // It was taken: it does not run twice.
        assert_eq!(next(&api.shared).await.status(), StatusCode::FORBIDDEN);
    }
}
