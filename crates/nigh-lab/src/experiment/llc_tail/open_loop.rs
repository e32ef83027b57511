//! An open-loop client of the store: requests are due at Poisson times, whatever became of those before.
//!
//! A latency counts from when its request was due, so that neither a slow server nor a late client hides a queue (no
//! coordinated omission). Requests that are due together go in one datagram. What is not answered by the end is lost.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nigh_llc::LatencyHistogram;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::request_mix::RequestMix;
use crate::experiment::llc_tail::kv_server::{MESSAGE_BYTES, Message, PACK_MAX};

/// How long answers are waited for after the last request.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a client saw.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientMeasurements {
    /// From when a request was due to its answer.
    pub(super) latency: LatencyHistogram,
    /// Requests sent.
    pub(super) sent: u64,
    /// How long the last answer took to come, from the begin.
    pub(super) took: Duration,
}

/// Sends `load` requests a second for `length`; those due before `warming` are not counted.
///
/// # Errors
/// If the socket fails.
pub(super) fn run(
    server: SocketAddr,
    mix: &mut RequestMix,
    load: f64,
    warming: Duration,
    length: Duration,
    seed: u64,
) -> io::Result<ClientMeasurements> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    let mut random = StdRng::seed_from_u64(seed);
    let mut gap = || Duration::from_secs_f64(-(1.0 - random.random::<f64>()).ln() / load);
    let (begin, end) = (Instant::now(), warming + length);
    let (mut due, mut pack) = (gap(), Vec::with_capacity(PACK_MAX * MESSAGE_BYTES));
    let (mut sent, mut answered, mut measured) = (0, 0, ClientMeasurements::default());
    loop {
        let now = begin.elapsed();
        while due <= now.min(end) && pack.len() < PACK_MAX * MESSAGE_BYTES {
            let number = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
            pack.extend(Message { number, request: mix.next() }.to_bytes());
            measured.sent += u64::from(due >= warming);
            sent += 1;
            due += gap();
        }
        if !pack.is_empty() {
            match socket.send(&pack) {
                Ok(_) => pack.clear(),
                // The socket's buffer is full; what is due waits, and its latency counts on.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        answered += receive(&socket, begin, warming, &mut measured)?;
        if due > end && pack.is_empty() && (answered >= sent || begin.elapsed() > end + PATIENCE) {
            return Ok(measured);
        }
        std::thread::yield_now();
    }
}

/// Takes the answers that are there; how many.
fn receive(
    socket: &UdpSocket,
    begin: Instant,
    warming: Duration,
    measured: &mut ClientMeasurements,
) -> io::Result<u64> {
    let mut bytes = [0; PACK_MAX * MESSAGE_BYTES];
    let mut answers = 0;
    loop {
        let length = match socket.recv(&mut bytes) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(answers),
            Err(error) => return Err(error),
        };
        let now = begin.elapsed();
        measured.took = now;
        for message in bytes[..length].chunks_exact(MESSAGE_BYTES).filter_map(Message::from_bytes) {
            answers += 1;
            let due = Duration::from_nanos(message.number);
            if due >= warming {
                measured.latency.record(now.saturating_sub(due));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kv_store::Entries;
    use super::*;

    /// Answers packs, after a pause of `stall` at the first.
    fn echo(stall: Duration) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; PACK_MAX * MESSAGE_BYTES];
            let mut stall = Some(stall);
            while let Ok((length, client)) = socket.recv_from(&mut bytes) {
                std::thread::sleep(stall.take().unwrap_or_default());
                let _ = socket.send_to(&bytes[..length], client);
            }
        });
        address
    }

    #[test]
    fn a_stall_of_the_server_counts_for_every_request_that_was_due_meanwhile() {
        let mut mix = RequestMix::new(Entries::SMALL, 1).unwrap();
        let stall = Duration::from_millis(100);
        let measured = run(echo(stall), &mut mix, 2000.0, Duration::ZERO, Duration::from_millis(200), 1).unwrap();
        let (got, sent) = (measured.latency.total(), measured.sent);
        assert!((250..550).contains(&sent) && got > 0 && got <= sent, "{got} of {sent}");
        // Half of the requests were due during the stall: 50 ms is what those in its middle waited.
        let percentile = nigh_llc::Percentile::try_from(80.0).unwrap();
        let long = measured.latency.quantile(percentile).unwrap();
        assert!(long > Duration::from_millis(20), "{long:?}");
    }
}
