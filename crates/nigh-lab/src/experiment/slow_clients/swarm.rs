//! Many slow clients in one thread that costs little beside what is measured.
//!
//! The thread has the least priority and wakes a hundred times a second at most. Each client has its turn once a second, of two system
//! calls: it reads what has come and sends what is due. So the end of a connection is noticed a second or two late.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::kind::SlowRequest;
use super::slow_connection::{SlowConnection, SlowEnd};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;

/// From a turn of a client to its next one.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// In that time the thread wakes so often at most, each time for as many clients.
const TICKS_MAX: usize = 100;
/// The least priority of a thread (setpriority(2)).
const NICENESS: i32 = 19;
/// A client whose connection has ended comes again so much later.
const COMES_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How often the experiment looks at the clients' progress.
const LOOK: Duration = Duration::from_millis(50);

/// Clients that are slow in one way at one door.
#[derive(Debug)]
pub(super) struct SlowPlan {
    pub(super) server: SocketAddr,
    pub(super) request: SlowRequest,
    pub(super) clients: usize,
    /// How many of them connect at most each time the thread wakes.
    pub(super) opens_a_tick: usize,
}

/// How the connections of a plan's clients ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SlowEnds {
    pub(super) opened: usize,
    /// Attempts to connect that this machine refused.
    pub(super) unopened: usize,
    /// Answered with 429 or 503.
    pub(super) refused: usize,
    /// Answered with success.
    pub(super) completed: usize,
    /// Milliseconds from the beginning of each connection that the node ended to its end.
    pub(super) ended_after_ms: Vec<u32>,
    /// Still open at the end.
    pub(super) open: usize,
    /// Connections by the status that the node answered.
    pub(super) answers: BTreeMap<u16, usize>,
}

impl SlowEnds {
    fn add(&mut self, end: SlowEnd, after: Duration) {
        let status = match end {
            SlowEnd::Refused(status) => {
                self.refused += 1;
                Some(status)
            }
            SlowEnd::Completed(status) => {
                self.completed += 1;
                Some(status)
            }
            SlowEnd::Closed(status) => {
                self.ended_after_ms.push(u32::try_from(after.as_millis()).unwrap_or(u32::MAX));
                status
            }
        };
        if let Some(status) = status {
            *self.answers.entry(status).or_default() += 1;
        }
    }

    /// Adds those of another time.
    pub(super) fn join(&mut self, other: &Self) {
        self.opened += other.opened;
        self.unopened += other.unopened;
        self.refused += other.refused;
        self.completed += other.completed;
        self.ended_after_ms.extend(&other.ended_after_ms);
        self.open += other.open;
        for (status, count) in &other.answers {
            *self.answers.entry(*status).or_default() += count;
        }
    }
}

/// What slow clients met.
#[derive(Debug)]
pub(super) struct SwarmOutcome {
    /// By plan.
    pub(super) ends: Vec<SlowEnds>,
    /// Processors that the thread kept busy, on average.
    pub(super) processors: f64,
}

#[derive(Debug)]
struct Progress {
    stop: AtomicBool,
    /// Clients that have not begun to be slow.
    beginning: AtomicUsize,
    /// Clients that are connected, or will be.
    left: AtomicUsize,
}

/// Slow clients that live until this is dropped.
#[derive(Debug)]
pub(super) struct Swarm {
    progress: Arc<Progress>,
    thread: Option<JoinHandle<SwarmOutcome>>,
}

impl Swarm {
    /// Starts the clients of all plans. Each comes again when its connection has ended, or only once.
    pub(super) fn start(plans: Vec<SlowPlan>, comes_again: bool) -> Result<Self, LabError> {
        let clients = plans.iter().map(|plan| plan.clients).sum();
        let (beginning, left) = (AtomicUsize::new(clients), AtomicUsize::new(clients));
        let progress = Arc::new(Progress { stop: AtomicBool::new(false), beginning, left });
        let shared = Arc::clone(&progress);
        let thread = std::thread::Builder::new().name("slow-clients".to_owned());
        let thread = thread.spawn(move || live(&plans, &shared, comes_again)).at("a thread of slow clients")?;
        Ok(Self { progress, thread: Some(thread) })
    }

    /// Waits until every client has begun to be slow, or was ended before; false if that takes longer than `within`.
    pub(super) fn begins(&self, within: Duration) -> bool {
        reaches_zero(&self.progress.beginning, within)
    }

    /// Waits until all connections of clients that come only once have ended; false if that takes longer than `within`.
    pub(super) fn ends(&self, within: Duration) -> bool {
        reaches_zero(&self.progress.left, within)
    }

    /// Resets all connections that are left.
    pub(super) fn finish(mut self) -> Result<SwarmOutcome, LabError> {
        self.stop().ok_or_else(|| LabError::Node("the thread of the slow clients panicked".to_owned()))
    }

    fn stop(&mut self) -> Option<SwarmOutcome> {
        self.progress.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.stop();
    }
}

fn reaches_zero(count: &AtomicUsize, within: Duration) -> bool {
    let began = Instant::now();
    while count.load(Ordering::Relaxed) > 0 {
        if began.elapsed() > within {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

#[derive(Debug)]
enum ClientState {
    /// Connects from this moment on.
    Away(Instant),
    Connected(SlowConnection),
    /// It does not come again.
    Gone,
}

#[derive(Debug)]
struct SlowClient {
    plan: usize,
    has_begun: bool,
    state: ClientState,
}

impl SlowClient {
    fn turn(&mut self, plan: &SlowPlan, ends: &mut SlowEnds, opens_left: &mut usize, comes_again: bool, now: Instant) {
        if let ClientState::Away(from) = self.state
            && from <= now
            && *opens_left > 0
        {
            *opens_left -= 1;
            self.state = match SlowConnection::open(plan.server, &plan.request, now) {
                Ok(connection) => {
                    ends.opened += 1;
                    ClientState::Connected(connection)
                }
                Err(_) => {
                    ends.unopened += 1;
                    ClientState::Away(now + COMES_AGAIN_AFTER)
                }
            };
        }
        let ClientState::Connected(connection) = &mut self.state else { return };
        let end = connection.turn(&plan.request, now);
        self.has_begun |= end.is_some() || connection.has_begun(&plan.request);
        if let Some(end) = end {
            ends.add(end, now.saturating_duration_since(connection.opened()));
            self.state = if comes_again { ClientState::Away(now + COMES_AGAIN_AFTER) } else { ClientState::Gone };
        }
    }
}

/// Gives all clients their turns until told to stop.
fn live(plans: &[SlowPlan], progress: &Progress, comes_again: bool) -> SwarmOutcome {
    // Any thread may lower its priority; if a sandbox of this program forbids it, the processor time is reported all the same.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let (began, cpu) = (Instant::now(), cpu_time::of_this_thread());
    let client = |plan| SlowClient { plan, has_begun: false, state: ClientState::Away(began) };
    let all = plans.iter().enumerate().flat_map(|(at, plan)| std::iter::repeat_n(at, plan.clients));
    let mut clients: Vec<SlowClient> = all.map(client).collect();
    let mut ends = vec![SlowEnds::default(); plans.len()];
    let turns = clients.len().div_ceil(TICKS_MAX).max(1);
    let tick = TURN_EVERY.mul_f64(turns as f64 / clients.len().max(turns) as f64);
    let (mut next, mut due) = (0, began);
    while !progress.stop.load(Ordering::Relaxed) {
        let mut opens_left: Vec<usize> = plans.iter().map(|plan| plan.opens_a_tick).collect();
        for _ in 0..turns.min(clients.len()) {
            let client = &mut clients[next];
            let (at, had_begun) = (client.plan, client.has_begun);
            client.turn(&plans[at], &mut ends[at], &mut opens_left[at], comes_again, Instant::now());
            progress.beginning.fetch_sub(usize::from(client.has_begun && !had_begun), Ordering::Relaxed);
            next = (next + 1) % clients.len();
        }
        if !comes_again {
            let left = clients.iter().filter(|client| !matches!(client.state, ClientState::Gone)).count();
            progress.left.store(left, Ordering::Relaxed);
        }
        due = (due + tick).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    for client in &clients {
        ends[client.plan].open += usize::from(matches!(client.state, ClientState::Connected(_)));
    }
    let cpu = cpu_time::of_this_thread().saturating_sub(cpu);
    SwarmOutcome { ends, processors: cpu.as_secs_f64() / began.elapsed().as_secs_f64().max(f64::EPSILON) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::super::kind::SlowKind;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn plan(server: SocketAddr, kind: SlowKind, clients: usize) -> SlowPlan {
        let request = SlowRequest::new(kind, b"PUT / HTTP/1.1\r\n\r\nbody".to_vec(), Vec::new());
        SlowPlan { server, request, clients, opens_a_tick: 10 }
    }

    #[test]
    fn clients_that_come_once_are_counted_by_how_they_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let plans = vec![plan(server, SlowKind::BodyBelow, 2), plan(server, SlowKind::Silent, 1)];
        let swarm = Swarm::start(plans, false).unwrap();
        let mut streams: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        assert!(swarm.begins(PATIENCE));
        assert!(!swarm.ends(Duration::from_millis(1)), "nobody has ended them");
        // The silent one is the one of which nothing comes.
        for stream in &mut streams {
            stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            let mut first = [0; 4];
            if stream.read_exact(&mut first).is_ok() {
                stream.write_all(b"HTTP/1.1 503 Slow Down\r\n\r\n").unwrap();
            }
        }
        drop(streams);
        assert!(swarm.ends(PATIENCE));
        let outcome = swarm.finish().unwrap();
        let [body, silent] = &outcome.ends[..] else { panic!("{outcome:?}") };
        assert_eq!((body.opened, body.refused, body.open), (2, 2, 0));
        assert_eq!(body.answers, BTreeMap::from([(503, 2)]));
        assert_eq!((silent.opened, silent.ended_after_ms.len(), silent.completed), (1, 1, 0));
        assert!(silent.ended_after_ms[0] < 20_000 && outcome.processors < 1.0, "{outcome:?}");
        let mut sum = body.clone();
        sum.join(silent);
        assert_eq!((sum.opened, sum.refused, sum.ended_after_ms.len()), (3, 2, 1));
    }

    #[test]
    fn clients_that_are_left_are_reset_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let swarm = Swarm::start(vec![plan(listener.local_addr().unwrap(), SlowKind::Silent, 3)], true).unwrap();
        let mut streams: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        assert!(swarm.begins(PATIENCE));
        let ends = swarm.finish().unwrap().ends;
        assert_eq!((ends[0].opened, ends[0].open, ends[0].ended_after_ms.len()), (3, 3, 0));
        for stream in &mut streams {
            assert!(stream.read(&mut [0]).is_err(), "reset");
        }
    }
}
