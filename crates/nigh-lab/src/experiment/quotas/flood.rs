//! The greedy tenant: clients that send at a fixed rate, whatever they are answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::instrument::http_load::{Connection, Reply, header};

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
pub(super) fn send(request: &GreedyRequest, per_second: u32, over: &AtomicBool) -> FloodOutcome {
    let begin = Instant::now();
    let period = Duration::from_secs(1) / per_second.max(1);
    let outcomes: Vec<FloodOutcome> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|client| scope.spawn(move || client_sends(request, period, client, begin, over)))
            .collect();
        clients.into_iter().filter_map(|client| client.join().ok()).collect()
    });
    let mut all = FloodOutcome::default();
    outcomes.into_iter().for_each(|outcome| all.join(outcome));
    all.took = begin.elapsed();
    all
}

/// Sends the requests of one client, each when it is due or as soon as the one before is answered.
fn client_sends(
    request: &GreedyRequest,
    period: Duration,
    client: u32,
    begin: Instant,
    over: &AtomicBool,
) -> FloodOutcome {
    let mut outcome = FloodOutcome::default();
    let mut connection: Option<Connection> = None;
    for number in (client..).step_by(CONNECTIONS as usize) {
        std::thread::sleep((begin + period * number).saturating_duration_since(Instant::now()));
        if over.load(Ordering::Relaxed) {
            break;
        }
        let sent = Instant::now();
        let opened = connection.take().map_or_else(|| Connection::open_within(request.server, PATIENCE), Ok);
        let answer = opened.and_then(|mut opened| {
            let reply = opened.ask(&request.bytes)?;
            connection = Some(opened);
            Ok(reply)
        });
        outcome.count(answer, sent.elapsed());
    }
    outcome
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
