//! Honest clients: they call at a fixed rate over connections that they keep, and wait for nobody.
//!
//! The latency of a call counts from when it was due, so that a call that waits for the one before counts too (no coordinated
//! omission). A door may close a kept connection that has been idle; like an SDK, a client then sends its call once more over a
//! new one, and the time of both counts. The first call over each connection is measured apart: it shows how a new client gets in.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::kind::Door;
use crate::LabError;
use crate::instrument::http_load::{Connection, Reply, header};
use crate::instrument::open_loop::{Bounds, Turns};
use crate::instrument::parallel::joined;

/// Connections of the clients of each call.
pub(in crate::experiment) const CONNECTIONS: u32 = 4;
/// A call without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first call is due so long after all clients are connected.
const READY: Duration = Duration::from_millis(20);
/// The calls of another kind are due so much later, so that none meets one of the other.
const APART: Duration = Duration::from_micros(2500);
/// What a GET asks for.
pub(in crate::experiment) const READ_BYTES: usize = 1 << 10;
/// What a PUT stores.
pub(in crate::experiment) const WRITE_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::experiment) enum HonestCall {
    /// An object of 1 KiB that is in memory.
    Get,
    /// An object of 16 KiB.
    Put,
    /// Of a warm function.
    Invoke,
    /// Blocking, of a warm action.
    Action,
    /// The URL of a warm function.
    FunctionUrl,
}

impl HonestCall {
    /// The calls whose latency is measured while slow clients are at this door.
    pub(in crate::experiment) const fn of(door: Door) -> &'static [Self] {
        match door {
            Door::S3 => &[Self::Get, Self::Put],
            Door::Lambda => &[Self::Invoke],
            Door::Openwhisk => &[Self::Action],
            Door::FunctionUrl => &[Self::FunctionUrl],
        }
    }

    /// Far less than a processor can do, so that no call waits for another of its kind.
    const fn per_second(self) -> u32 {
        match self {
            Self::Get => 200,
            Self::Put | Self::Invoke | Self::Action | Self::FunctionUrl => 50,
        }
    }

    fn is_right(self, reply: &Reply) -> bool {
        match self {
            Self::Get => reply.body.len() == READ_BYTES,
            Self::Put => true,
            Self::Invoke | Self::Action | Self::FunctionUrl => {
                header(&reply.head, "x-amz-function-error").is_none()
                    && reply.body.windows(6).any(|text| text == b"\"text\"")
            }
        }
    }
}

/// A call that is sent again and again.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct HonestRequest {
    pub(in crate::experiment) call: HonestCall,
    pub(in crate::experiment) server: SocketAddr,
    pub(in crate::experiment) bytes: Vec<u8>,
}

/// What the clients of one call met in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::experiment) struct HonestOutcome {
    pub(in crate::experiment) call: HonestCall,
    /// Of each answered call, from when it was due.
    pub(in crate::experiment) latencies_us: Vec<u32>,
    /// Of the first call over each connection, with the time to connect.
    pub(in crate::experiment) first_us: Vec<u32>,
    /// Calls without the right answer, the first ones too.
    pub(in crate::experiment) failed: usize,
    pub(in crate::experiment) first_failure: Option<String>,
    /// Calls that were sent again because the door had closed the kept connection.
    pub(in crate::experiment) sent_again: usize,
}

impl HonestOutcome {
    fn new(call: HonestCall) -> Self {
        let (latencies_us, first_us) = (Vec::new(), Vec::new());
        Self { call, latencies_us, first_us, failed: 0, first_failure: None, sent_again: 0 }
    }

    fn fail(&mut self, reason: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(reason);
    }

    fn join(&mut self, other: Self) {
        self.latencies_us.extend(other.latencies_us);
        self.first_us.extend(other.first_us);
        self.failed += other.failed;
        self.sent_again += other.sent_again;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

/// Calls for `length`: each request by clients of its own.
pub(in crate::experiment) fn play(
    requests: &[HonestRequest],
    length: Duration,
) -> Result<Vec<HonestOutcome>, LabError> {
    let mut clients = Vec::new();
    for (later, request) in (0_u32..).map(|at| APART * at).zip(requests) {
        for number in 0..CONNECTIONS {
            let outcome = HonestOutcome::new(request.call);
            let mut client = HonestClient { request, number, later, connection: None, outcome };
            client.enter();
            clients.push(client);
        }
    }
    let never = AtomicBool::new(false);
    let bounds = Bounds { begin: Instant::now() + READY, end: None, stop: &never };
    let played = std::thread::scope(|scope| {
        joined(clients.into_iter().map(|client| scope.spawn(move || Ok(client.play(bounds, length)))).collect())
    })?;
    let mut outcomes: Vec<HonestOutcome> = requests.iter().map(|request| HonestOutcome::new(request.call)).collect();
    for outcome in played {
        if let Some(all) = outcomes.iter_mut().find(|all| all.call == outcome.call) {
            all.join(outcome);
        }
    }
    Ok(outcomes)
}

struct HonestClient<'a> {
    request: &'a HonestRequest,
    /// Of the clients of this call.
    number: u32,
    /// How much later than those of the first kind its calls are due.
    later: Duration,
    connection: Option<Connection>,
    outcome: HonestOutcome,
}

impl HonestClient<'_> {
    /// Connects and calls for the first time.
    fn enter(&mut self) {
        let begin = Instant::now();
        match self.call() {
            Ok(()) => self.outcome.first_us.push(microseconds(begin.elapsed())),
            Err(reason) => self.outcome.fail(format!("the first call of a client: {reason}")),
        }
    }

    /// Makes every call of which its turn has come, each when it is due.
    fn play(mut self, bounds: Bounds<'_>, length: Duration) -> HonestOutcome {
        let (period, later) = (Duration::from_secs(1) / self.request.call.per_second(), self.later);
        // Each connection has its own calls, so that all idle equally long.
        let own = (self.number..).step_by(CONNECTIONS as usize);
        let own = own.map(|number| (number as usize, period * number)).take_while(|(_, after)| *after < length);
        for turn in Turns::new(bounds, own.map(|(number, after)| (number, later + after))) {
            match self.call() {
                Ok(()) => self.outcome.latencies_us.push(microseconds(turn.due.elapsed())),
                Err(reason) => self.outcome.fail(reason),
            }
        }
        self.outcome
    }

    fn call(&mut self) -> Result<(), String> {
        if let Some(mut kept) = self.connection.take() {
            match kept.ask(&self.request.bytes) {
                Ok(reply) => return self.answered(kept, &reply),
                Err(error) if is_closed(error.kind()) => self.outcome.sent_again += 1,
                Err(error) => return Err(error.to_string()),
            }
        }
        let opened = Connection::open_within(self.request.server, PATIENCE);
        let mut opened = opened.map_err(|error| format!("connecting: {error}"))?;
        let reply = opened.ask(&self.request.bytes).map_err(|error| error.to_string())?;
        self.answered(opened, &reply)
    }

    /// Keeps the connection for the next call, and judges the reply.
    fn answered(&mut self, connection: Connection, reply: &Reply) -> Result<(), String> {
        self.connection = Some(connection);
        if matches!(reply.status(), 200..=299) && self.request.call.is_right(reply) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&reply.body);
        let said: String = said.chars().take(300).collect();
        Err(format!("{} {said}", reply.head.lines().next().unwrap_or_default()))
    }
}

/// The other end has closed the connection.
const fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
    )
}

fn microseconds(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const CALL: &[u8] = b"PUT / HTTP/1.1\r\n\r\n";

    /// Answers so many calls over one connection, then closes it.
    fn serve(mut stream: TcpStream, calls: usize, status: &str) {
        for _ in 0..calls {
            let mut call = vec![0; CALL.len()];
            if stream.read_exact(&mut call).is_err() {
                return;
            }
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    }

    /// What clients meet at a door that closes a connection behind so many calls.
    fn met(calls: usize, status: &'static str) -> HonestOutcome {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, calls, status));
            }
        });
        let request = HonestRequest { call: HonestCall::Put, server, bytes: CALL.to_vec() };
        play(&[request], Duration::from_millis(400)).unwrap().remove(0)
    }

    #[test]
    fn calls_come_at_their_rate_and_the_first_one_of_each_connection_is_measured_apart() {
        let met = met(1000, "200 OK");
        assert_eq!((met.latencies_us.len(), met.first_us.len()), (20, 4), "{met:?}");
        assert_eq!((met.failed, met.sent_again, &met.first_failure), (0, 0, &None));
    }

    #[test]
    fn a_call_that_finds_its_connection_closed_is_sent_again_over_a_new_one_and_is_no_failure() {
        let met = met(2, "200 OK");
        assert_eq!((met.latencies_us.len(), met.failed), (20, 0), "{met:?}");
        // Of the five calls of each client, the second and the fourth.
        assert_eq!(met.sent_again, 8, "{met:?}");
    }

    #[test]
    fn an_answer_that_is_no_success_is_a_failure_and_told() {
        let met = met(1000, "503 Slow Down");
        assert_eq!((met.latencies_us.len(), met.first_us.len(), met.failed), (0, 0, 24), "{met:?}");
        assert!(met.first_failure.unwrap().contains("503 Slow Down"));
    }

    #[test]
    fn an_answer_of_the_wrong_length_or_with_a_function_s_error_is_wrong() {
        let reply = |head: &str, body: &[u8]| Reply { head: head.to_owned(), body: body.to_vec() };
        let head = "HTTP/1.1 200 OK\r\n";
        assert!(HonestCall::Get.is_right(&reply(head, &[0; READ_BYTES])));
        assert!(!HonestCall::Get.is_right(&reply(head, &[0; 10])));
        assert!(HonestCall::Invoke.is_right(&reply(head, b"{\"text\": \"\"}")));
        assert!(
            !HonestCall::Invoke
                .is_right(&reply("HTTP/1.1 200 OK\r\nX-Amz-Function-Error: Unhandled\r\n", b"{\"text\": 1}"))
        );
        assert!(!HonestCall::Action.is_right(&reply(head, b"{}")));
    }
}
