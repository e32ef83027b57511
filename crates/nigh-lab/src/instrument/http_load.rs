//! A closed-loop HTTP load of few instructions: one blocking connection a client, requests prepared as bytes.
//!
//! The client must cost little beside the server it measures, so it parses no more than the status and the length.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What one round measured.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// Microseconds of each request, from its first byte sent to its last byte received.
    pub(crate) latencies_us: Vec<f64>,
    /// How long the round took.
    pub(crate) took: Duration,
}

/// The largest reply head that is accepted.
const HEAD_MAX: usize = 16 << 10;
/// How long a reply may take.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// One keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to `server`.
    ///
    /// # Errors
    /// The system's reason.
    pub fn open(server: SocketAddr) -> io::Result<Self> {
        Self::open_within(server, REPLY_TIMEOUT)
    }

    /// Connects to `server` and waits for each reply, no longer than `patience` each.
    pub(crate) fn open_within(server: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream, buffer: vec![0; 256 << 10] })
    }

    /// Waits so long for a reply, instead of a minute.
    pub(crate) fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Sends `request` as it is and reads the whole reply. Returns its body's length.
    ///
    /// # Errors
    /// If the connection breaks or the reply is no success.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<u64> {
        let mut refusal = Vec::new();
        let (head, length) = self.receive(request, |status, piece| {
            if !is_success(status) {
                refusal.extend_from_slice(piece);
            }
        })?;
        Reply { head, body: refusal }.success().map(|_| length)
    }

    /// Exchanges like `exchange`, and gives the reply's head and body.
    ///
    /// # Errors
    /// If the connection breaks or the reply is no success.
    pub fn fetch(&mut self, request: &[u8]) -> io::Result<(String, Vec<u8>)> {
        self.ask(request)?.success().map(|reply| (reply.head, reply.body))
    }

    /// Fetches like `fetch`, but gives also a reply that is no success. The reply is read to its end: the connection can be used
    /// again.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<Reply> {
        let mut body = Vec::new();
        let (head, _) = self.receive(request, |_, piece| body.extend_from_slice(piece))?;
        Ok(Reply { head, body })
    }

    /// Sends `request` and gives `take` the pieces of the reply's body, each with the reply's status. Returns the reply's
    /// head and its body's length.
    fn receive(&mut self, request: &[u8], mut take: impl FnMut(u16, &[u8])) -> io::Result<(String, u64)> {
        self.stream.write_all(request)?;
        let mut filled = 0;
        let head = loop {
            let read = self.stream.read(&mut self.buffer[filled..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if let Some(end) = find(&self.buffer[..filled], b"\r\n\r\n") {
                break end + 4;
            }
            if filled > HEAD_MAX {
                return Err(io::Error::other("the reply's head does not end"));
            }
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).into_owned();
        let status = status(&text);
        // A reply that may have no body (204) says no length.
        let length = content_length(&text).unwrap_or_default();
        take(status, &self.buffer[head..filled]);
        let mut missing = length.saturating_sub((filled - head) as u64);
        while missing > 0 {
            let read = self.stream.read(&mut self.buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            take(status, &self.buffer[..read]);
            missing = missing.saturating_sub(read as u64);
        }
        Ok((text, length))
    }
}

/// What a server replied, success or not.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The status line and the headers.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The status code, 200 or another; 0 where the head has none.
    pub(crate) fn status(&self) -> u16 {
        status(&self.head)
    }

    /// The reply if it is a success, 200 to 299.
    pub(crate) fn success(self) -> io::Result<Self> {
        if is_success(self.status()) {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body);
        Err(io::Error::other(format!("{} {body}", self.head.lines().next().unwrap_or_default())))
    }
}

const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

/// The status code in a reply's head.
fn status(head: &str) -> u16 {
    let code = head.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_default()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn content_length(head: &str) -> Option<u64> {
    header(head, "content-length").and_then(|value| value.parse().ok())
}

/// The value of the header `name` in a message's head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// Runs `clients` connections for `length`, each sending `request` again as soon as it has its reply.
pub(crate) fn closed_loop(server: SocketAddr, request: &[u8], clients: usize, length: Duration) -> io::Result<Round> {
    let begin = Instant::now();
    let results: Vec<io::Result<Vec<f64>>> = std::thread::scope(|scope| {
        let client = || -> io::Result<Vec<f64>> {
            let mut connection = Connection::open(server)?;
            connection.exchange(request)?;
            let mut latencies = Vec::new();
            while begin.elapsed() < length {
                let sent = Instant::now();
                connection.exchange(request)?;
                latencies.push(sent.elapsed().as_secs_f64() * 1e6);
            }
            Ok(latencies)
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let panicked = || Err(io::Error::other("a client panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let took = begin.elapsed();
    let latencies_us = results.into_iter().collect::<io::Result<Vec<_>>>()?.concat();
    Ok(Round { latencies_us, took })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_goes_on_behind_a_refusal_whose_body_comes_in_pieces() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let serve = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let pieces: [&[&str]; 3] = [
                &["HTTP/1.1 429 Too Many Requests\r\ncontent-length: 9\r\n\r\nno ", "room", "!!"],
                &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"],
                &["HTTP/1.1 503 Slow Down\r\ncontent-length: 4\r\n\r\nslow"],
            ];
            for reply in pieces {
                let mut request = [0; 4];
                stream.read_exact(&mut request).unwrap();
                for piece in reply {
                    stream.write_all(piece.as_bytes()).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let mut connection = Connection::open(server).unwrap();
        let refused = connection.ask(b"ask!").unwrap();
        assert_eq!((refused.status(), refused.body.as_slice()), (429, b"no room!!".as_slice()));
        assert_eq!(connection.fetch(b"ask!").unwrap().1, b"ok");
        assert_eq!(connection.exchange(b"ask!").unwrap_err().to_string(), "HTTP/1.1 503 Slow Down slow");
        serve.join().unwrap();
    }

    #[test]
    fn a_head_without_a_status_is_no_success() {
        assert_eq!(status("HTTP/1.1 204 No Content\r\n\r\n"), 204);
        for broken in ["", "HTTP/1.1", "HTTP/1.1 2", "HTTP/2 200 OK"] {
            assert_eq!(status(broken), 0, "{broken}");
        }
        assert!(Reply { head: String::new(), body: Vec::new() }.success().is_err());
    }
}
