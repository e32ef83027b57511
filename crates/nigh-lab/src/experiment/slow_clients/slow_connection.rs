//! One slow client's connection. It takes no thread and no timer: whoever holds it gives it a turn now and then.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::kind::SlowRequest;

/// `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;
/// A client that reads slowly has the segment size of one across a network and little memory, so that the kernels of both
/// sides hold little of the answer, and the node has to wait with the rest.
const SEGMENT_BYTES: u32 = 1400;
const RECEIVE_BUFFER: usize = 4 << 10;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowEnd {
    /// The node answered that too much is under way.
    Refused(u16),
    /// The node answered with success.
    Completed(u16),
    /// The node ended it, with an answer of this status or without any.
    Closed(Option<u16>),
}

#[derive(Debug)]
pub(super) struct SlowConnection {
    socket: Socket,
    opened: Instant,
    sent: usize,
    half_closed: bool,
    /// The first bytes of the answer.
    status_line: Vec<u8>,
    status: Option<u16>,
}

impl SlowConnection {
    /// Begins to connect, and waits for nothing.
    pub(super) fn open(server: SocketAddr, request: &SlowRequest, now: Instant) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // Dropped, it is reset: thousands of closed connections would keep their ports for a minute.
        socket.set_linger(Some(Duration::ZERO))?;
        if request.reads_slowly {
            socket.set_tcp_mss(SEGMENT_BYTES)?;
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        if let Err(error) = socket.connect(&server.into())
            && error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error())
        {
            return Err(error);
        }
        let (status_line, status) = (Vec::with_capacity(STATUS_BYTES), None);
        Ok(Self { socket, opened: now, sent: 0, half_closed: false, status_line, status })
    }

    pub(super) const fn opened(&self) -> Instant {
        self.opened
    }

    /// It has sent what it sends at once and, if it is to read an answer slowly, has begun to.
    pub(super) const fn has_begun(&self, request: &SlowRequest) -> bool {
        request.has_begun(self.sent) && (self.status.is_some() || !request.reads_slowly)
    }

    /// Takes what has come and sends what is due. Says how the connection has ended, if it has.
    pub(super) fn turn(&mut self, request: &SlowRequest, now: Instant) -> Option<SlowEnd> {
        if let Some(end) = self.read(request.reads_slowly) {
            return Some(end);
        }
        self.send(request, now).err().map(|_| SlowEnd::Closed(self.status))
    }

    fn read(&mut self, reads_slowly: bool) -> Option<SlowEnd> {
        let mut piece = [0; STATUS_BYTES];
        loop {
            let wanted = if self.status.is_some() { 1 } else { STATUS_BYTES - self.status_line.len() };
            match (&self.socket).read(&mut piece[..wanted]) {
                Ok(0) => return Some(SlowEnd::Closed(self.status)),
                // A byte of an answer that is read slowly.
                Ok(_) if self.status.is_some() => return None,
                Ok(read) => self.status_line.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) => return Some(SlowEnd::Closed(self.status)),
            }
            if self.status_line.len() == STATUS_BYTES {
                let status = status_of(&self.status_line);
                self.status = Some(status);
                match status {
                    429 | 503 => return Some(SlowEnd::Refused(status)),
                    200..=299 if reads_slowly => {}
                    200..=299 => return Some(SlowEnd::Completed(status)),
                    _ => return Some(SlowEnd::Closed(Some(status))),
                }
            }
        }
    }

    fn send(&mut self, request: &SlowRequest, now: Instant) -> std::io::Result<()> {
        loop {
            let due = request.due(self.sent, now.saturating_duration_since(self.opened));
            if due.is_empty() {
                break;
            }
            match (&self.socket).write(due) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It is not connected yet, or the node takes nothing now.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if request.half_closes && !self.half_closed && request.has_begun(self.sent) {
            self.socket.shutdown(Shutdown::Write)?;
            self.half_closed = true;
        }
        Ok(())
    }
}

/// The status in `HTTP/1.1 200`; 0 if this is no answer of HTTP.
fn status_of(line: &[u8]) -> u16 {
    let code = line.strip_prefix(b"HTTP/1.1 ").and_then(|code| std::str::from_utf8(code).ok());
    code.and_then(|code| code.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::kind::SlowKind;
    use super::*;

    const UPLOAD: &[u8] = b"PUT / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody";
    const ASKED: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
    const PATIENCE: Duration = Duration::from_secs(20);

    fn connected(kind: SlowKind) -> (SlowRequest, SlowConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let request = SlowRequest::new(kind, UPLOAD.to_vec(), ASKED.to_vec());
        let connection = SlowConnection::open(listener.local_addr().unwrap(), &request, Instant::now()).unwrap();
        let node = listener.accept().unwrap().0;
        node.set_read_timeout(Some(PATIENCE)).unwrap();
        (request, connection, node)
    }

    /// Gives turns until it has ended.
    fn end(connection: &mut SlowConnection, request: &SlowRequest, now: Instant) -> SlowEnd {
        let began = Instant::now();
        loop {
            if let Some(end) = connection.turn(request, now) {
                return end;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_body_comes_at_its_rate_and_a_refusal_and_a_failure_and_a_success_are_told_apart() {
        for (answer, expected) in [
            ("HTTP/1.1 503 Slow Down\r\n\r\n", SlowEnd::Refused(503)),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", SlowEnd::Closed(Some(400))),
            ("HTTP/1.1 200 OK\r\n\r\n", SlowEnd::Completed(200)),
            ("", SlowEnd::Closed(None)),
        ] {
            let (request, mut connection, mut node) = connected(SlowKind::BodyBelow);
            let opened = connection.opened();
            assert!(!connection.has_begun(&request));
            assert_eq!(connection.turn(&request, opened), None);
            assert!(connection.has_begun(&request));
            assert_eq!(connection.turn(&request, opened + Duration::from_secs(2)), None);
            let mut came = vec![0; UPLOAD.len() - 2];
            node.read_exact(&mut came).unwrap();
            assert_eq!(came, UPLOAD[..UPLOAD.len() - 2]);
            node.write_all(answer.as_bytes()).unwrap();
            drop(node);
            assert_eq!(end(&mut connection, &request, opened), expected);
        }
    }

    #[test]
    fn a_half_closed_client_still_reads() {
        let (request, mut connection, mut node) = connected(SlowKind::HalfClosed);
        assert_eq!(connection.turn(&request, Instant::now()), None);
        let mut came = Vec::new();
        node.read_to_end(&mut came).unwrap();
        assert_eq!(came, UPLOAD);
        node.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        assert_eq!(end(&mut connection, &request, Instant::now()), SlowEnd::Closed(Some(400)));
    }

    #[test]
    fn a_slow_reader_takes_little_of_its_answer_and_learns_that_the_node_has_closed_the_connection() {
        let (request, mut connection, mut node) = connected(SlowKind::Answer);
        let opened = connection.opened();
        assert_eq!(connection.turn(&request, opened), None);
        node.read_exact(&mut [0; 18]).unwrap();
        node.set_nonblocking(true).unwrap();
        let answer = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; 256 << 10]].concat();
        let taken = node.write(&answer).unwrap();
        assert!(taken < answer.len(), "the kernel takes all of {taken} bytes");
        let began = Instant::now();
        while !connection.has_begun(&request) {
            assert_eq!(connection.turn(&request, opened), None);
            assert!(began.elapsed() < PATIENCE, "the answer does not come");
        }
        drop(node);
        let mut later = opened;
        let began = Instant::now();
        let end = loop {
            later += Duration::from_secs(1);
            if let Some(end) = connection.turn(&request, later) {
                break end;
            }
            assert!(began.elapsed() < PATIENCE, "it does not learn of the end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(end, SlowEnd::Closed(Some(200)), "cut behind its head");
    }

    #[test]
    fn what_is_no_answer_has_no_status() {
        assert_eq!((status_of(b"HTTP/1.1 404"), status_of(b"HTTP/2 404xx"), status_of(b"")), (404, 0, 0));
    }
}
