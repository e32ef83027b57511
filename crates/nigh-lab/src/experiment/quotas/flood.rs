//! The greedy tenant: clients that send at a fixed rate, whatever they are answered.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::LabError;
use crate::instrument::http_load::{Connection, Reply, header};
use crate::instrument::open_loop::{self, Bounds, Turn};

/// Its connections, each with a thread.
const CONNECTIONS: u32 = 8;
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request that is sent again and again.
#[derive(Clone, Debug)]
pub(super) struct GreedyRequest {
    pub(super) server: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// What became of the requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FloodOutcome {
    pub(super) sent: usize,
    pub(super) accepted: usize,
    /// Answered with 429 or 503.
    pub(super) refused: usize,
    /// Of these, how many did not say when to try again.
    pub(super) silent: usize,
    /// Answered otherwise, or not at all.
    pub(super) failed: usize,
    pub(super) first_failure: Option<String>,
    /// Of each refusal.
    pub(super) refused_us: Vec<u32>,
    /// How long the clients sent.
    pub(super) took: Duration,
}

impl FloodOutcome {
    fn count(&mut self, answer: std::io::Result<Reply>, took: Duration) {
        self.sent += 1;
        match answer {
            Ok(reply) if matches!(reply.status(), 200..=299) => self.accepted += 1,
            Ok(reply) if matches!(reply.status(), 429 | 503) => {
                self.refused += 1;
                self.refused_us.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
                if header(&reply.head, "retry-after").is_none() {
                    self.silent += 1;
                }
            }
            Ok(reply) => self.fail(reply.head.lines().next().unwrap_or_default().to_owned()),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, reason: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(reason);
    }

    pub(super) fn join(&mut self, other: Self) {
        self.sent += other.sent;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.silent += other.silent;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.refused_us.extend(other.refused_us);
        self.took += other.took;
    }
}

/// Sends `request` so often a second until it is `over`.
pub(super) fn send(request: &GreedyRequest, per_second: u32, over: &AtomicBool) -> Result<FloodOutcome, LabError> {
    let period = Duration::from_secs(1) / per_second.max(1);
    let all = Mutex::new(FloodOutcome::default());
    let client = |_| {
        let (all, mut connection) = (&all, None);
        move |turn: &Turn| {
            let answer = ask(request, &mut connection);
            all.lock().count(answer, turn.sent.elapsed());
        }
    };
    let bounds = Bounds { begin: Instant::now(), end: None, stop: over };
    open_loop::play((0..CONNECTIONS).map(client).collect(), bounds, |number| Some(period * number as u32))?;
    Ok(FloodOutcome { took: bounds.begin.elapsed(), ..all.into_inner() })
}

/// Asks once, over a new connection if the last one broke.
fn ask(request: &GreedyRequest, connection: &mut Option<Connection>) -> std::io::Result<Reply> {
    let mut opened = connection.take().map_or_else(|| Connection::open_within(request.server, PATIENCE), Ok)?;
    let reply = opened.ask(&request.bytes)?;
    *connection = Some(opened);
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(head: &str) -> std::io::Result<Reply> {
        Ok(Reply { head: head.to_owned(), body: Vec::new() })
    }

    #[test]
    fn answers_are_told_apart_and_a_refusal_without_a_date_is_noticed() {
        let mut outcome = FloodOutcome::default();
        let took = Duration::from_micros(300);
        outcome.count(reply("HTTP/1.1 200 OK\r\n"), took);
        outcome.count(reply("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n"), took);
        outcome.count(reply("HTTP/1.1 503 Slow Down\r\n"), took);
        outcome.count(reply("HTTP/1.1 403 Forbidden\r\n"), took);
        outcome.count(Err(std::io::ErrorKind::ConnectionReset.into()), took);
        let FloodOutcome { sent, accepted, refused, silent, failed, first_failure, refused_us, .. } = outcome;
        assert_eq!((sent, accepted, refused, silent, failed), (5, 1, 2, 1, 2));
        assert_eq!(first_failure.as_deref(), Some("HTTP/1.1 403 Forbidden"));
        assert_eq!(refused_us, [300, 300]);
    }
}
