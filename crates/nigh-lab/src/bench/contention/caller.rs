//! One caller: a connection that is kept, and calls by a schedule that waits for no answer.
//!
//! A caller that is behind its schedule sends at once. The latency of each call is told from when it was sent, and from when
//! it was due (as wrk2 does), which counts what the calls before it made it wait (coordinated omission).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::cell::Cell;
use super::nodes::function_name;
use super::requests::Requests;
use super::schedule::{Phases, Schedule};
use crate::instrument::http_load::{Connection, header};
use crate::instrument::open_loop::{Bounds, Turns};

const TOO_MANY_REQUESTS: u16 = 429;

#[derive(Debug, Default)]
pub(super) struct CallerOutcome {
    pub(super) answered: u64,
    pub(super) refused: u64,
    /// Calls that failed otherwise, whenever.
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
    /// Functions that answered it, whenever.
    pub(super) functions: BTreeSet<u32>,
    /// Milliseconds of each answered call that was sent in the measured phase, from when it was sent.
    pub(super) sent_ms: Vec<f64>,
    /// The same calls, from when they were due.
    pub(super) due_ms: Vec<f64>,
}

enum Call {
    Answered,
    Refused,
    Failed(String),
}

pub(super) struct Caller<'a> {
    pub(super) number: u32,
    pub(super) cell: &'a Cell,
    pub(super) doors: &'a [SocketAddr],
    pub(super) requests: &'a Requests<'a>,
    pub(super) schedule: Schedule,
    pub(super) stop: &'a AtomicBool,
}

impl Caller<'_> {
    /// Calls from the beginning to the end of the load, and awaits the last answer. In a thread of its own.
    pub(super) fn play(&self, phases: &Phases) -> CallerOutcome {
        let mut outcome = CallerOutcome::default();
        let door = self.cell.door_of(self.number);
        let mut connection = Connection::open(self.doors[door]).ok();
        // The schedule of the measured phase begins anew: it inherits no delay but that of a call that is under way.
        for (begin, end) in [(phases.begin, phases.measured), (phases.measured, phases.end)] {
            let bounds = Bounds { begin, end: Some(end), stop: self.stop };
            let calls = (0_u32..).map(|call| (call as usize, self.schedule.due(call)));
            for turn in Turns::new(bounds, calls) {
                let function = self.cell.function_of(self.number, turn.number as u32);
                let request = self.requests.of(door, function);
                let sent = Instant::now();
                let met = send(self.doors[door], &mut connection, &request);
                let ended = Instant::now();
                let is_measured = u64::from(phases.measures(ended));
                match met {
                    Call::Answered => {
                        outcome.functions.insert(function);
                        outcome.answered += is_measured;
                        if begin == phases.measured {
                            outcome.sent_ms.push(ms(ended - sent));
                            outcome.due_ms.push(ms(ended - turn.due));
                        }
                    }
                    Call::Refused => outcome.refused += is_measured,
                    Call::Failed(why) => {
                        outcome.failed += 1;
                        outcome.first_failure.get_or_insert_with(|| format!("{}: {why}", function_name(function)));
                    }
                }
            }
        }
        outcome
    }
}

/// Calls once, over a new connection to `door` if the last one broke.
fn send(door: SocketAddr, connection: &mut Option<Connection>, request: &[u8]) -> Call {
    let broken = |error: std::io::Error| Call::Failed(error.to_string());
    let mut open = match connection.take().map_or_else(|| Connection::open(door), Ok) {
        Ok(open) => open,
        Err(error) => return broken(error),
    };
    let reply = match open.ask(request) {
        Ok(reply) => reply,
        Err(error) => return broken(error),
    };
    *connection = Some(open);
    if reply.status() == TOO_MANY_REQUESTS {
        return Call::Refused;
    }
    match reply.success() {
        Err(error) => broken(error),
        Ok(reply) => match header(&reply.head, "x-amz-function-error") {
            None => Call::Answered,
            Some(kind) => Call::Failed(format!("{kind}: {}", String::from_utf8_lossy(&reply.body))),
        },
    }
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::instrument::sign::Signer;

    const PERIOD: Duration = Duration::from_millis(200);

    /// Answers each request on one connection: after so long, with that status.
    fn serve(listener: &TcpListener, replies: &[(Duration, &str)]) {
        let mut stream = listener.accept().unwrap().0;
        let mut request = [0; 4096];
        for (after, status) in replies {
            assert!(stream.read(&mut request).unwrap() > 0);
            std::thread::sleep(*after);
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
        }
    }

    #[tokio::test]
    async fn a_late_call_counts_from_when_it_was_due_and_a_refusal_is_no_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let doors = [listener.local_addr().unwrap()];
        let cell: Cell = "1,2GiB,1,1".parse().unwrap();
        let signer = Signer::new("lambda", "local", "key", "secret");
        let requests = Requests::sign(&signer, &doors, 1).await.unwrap();
        let replies = [
            (PERIOD * 3 / 2, "200 OK"),
            (Duration::ZERO, "200 OK"),
            (Duration::ZERO, "429 Wait"),
            (Duration::ZERO, "500 No"),
        ];
        let schedule = Schedule::of_caller(0, &cell, PERIOD);
        let stop = AtomicBool::new(false);
        let caller = Caller { number: 0, cell: &cell, doors: &doors, requests: &requests, schedule, stop: &stop };
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &replies));
            caller.play(&Phases::of(Instant::now(), Duration::ZERO, PERIOD * 4))
        });
        assert_eq!((outcome.answered, outcome.refused, outcome.failed), (2, 1, 1), "{outcome:?}");
        assert_eq!(outcome.first_failure.as_deref(), Some("contender-0: HTTP/1.1 500 No {}"));
        assert_eq!((outcome.sent_ms.len(), &outcome.functions), (2, &BTreeSet::from([0])));
        // The second call waited for the first, half a period.
        assert!(outcome.due_ms[1] >= outcome.sent_ms[1] + ms(PERIOD / 2) - 1.0, "{outcome:?}");
    }
}
