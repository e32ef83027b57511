//! A connection's socket and what goes out on it: shared with the segments that came in on it, which may live longer.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use nigh_client::{Arrived, Inbox, Socket, request_header};
use parking_lot::Mutex;
use rustix::io::Errno;

const RELEASE: u8 = 7;
pub(crate) const ABANDON: u8 = 8;
/// Released segments that wait to be named in the next read; one more, and all are told at once (`nigh/connection.py`).
const RELEASED_MAX: usize = 4;
/// Hints that did not fit the socket's buffer; beyond it the oldest are dropped, and the node finds out by itself.
const UNSENT_MAX: usize = 1024;

/// Why nothing came.
pub(crate) enum Failure {
    /// The request did not go out.
    Sending(Errno),
    /// It did, and no answer came.
    Waiting(Errno),
}

/// Its locks are taken only by a thread that has the interpreter's lock, and held while no Python code may run. A thread
/// that forks has that lock too, so the child finds none of these locked by a thread that it does not have.
pub(crate) struct Line {
    /// The process that opened it.
    pub(crate) pid: u32,
    /// None once it is closed.
    socket: Mutex<Option<Arc<Socket>>>,
    released: Mutex<Vec<u64>>,
    unsent: Mutex<VecDeque<Vec<u8>>>,
}

impl Line {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            pid: std::process::id(),
            socket: Mutex::new(Some(Arc::new(socket))),
            released: Mutex::new(Vec::new()),
            unsent: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.socket.lock().is_some()
    }

    /// The socket's number; -1 once it is closed.
    pub(crate) fn number(&self) -> i32 {
        self.socket.lock().as_ref().map_or(-1, |socket| socket.as_fd().as_raw_fd())
    }

    /// Closes it. A thread that waits on it holds the socket until its wait is over. In a child of fork(2) that thread does
    /// not exist, and would hold the socket for ever: there it is closed at once.
    pub(crate) fn close(&self) {
        let Some(socket) = self.socket.lock().take() else { return };
        if std::process::id() != self.pid && Arc::strong_count(&socket) > 1 {
            // SAFETY: `socket()` gives the socket out in the process alone that opened it, so none of this one's threads uses
            // the descriptor, and this reference, which is never dropped, keeps all others from closing it once more.
            unsafe { rustix::io::close(socket.as_fd().as_raw_fd()) };
            std::mem::forget(socket);
        }
    }

    /// The socket, to send or to wait; none once it is closed, and none in another process. Whoever takes it drops it before
    /// Python code may run: that may fork.
    pub(crate) fn socket(&self) -> Option<Arc<Socket>> {
        if std::process::id() != self.pid {
            return None;
        }
        self.socket.lock().clone()
    }

    /// What is to be sent before the next packet is waited for: nothing without a `request`, else also the hints that wait.
    pub(crate) fn outgoing<'p>(&self, request: Option<&'p [u8]>) -> Outgoing<'p> {
        let hints = if request.is_some() { std::mem::take(&mut *self.unsent.lock()) } else { VecDeque::new() };
        Outgoing { hints, request }
    }

    /// Says that a segment is not used any more, with the next read or, if there are several, now. Never waits, never fails.
    pub(crate) fn release(&self, handle: u64) {
        if std::process::id() != self.pid {
            return;
        }
        let many = {
            let mut released = self.released.lock();
            released.push(handle);
            if released.len() > RELEASED_MAX { std::mem::take(&mut *released) } else { Vec::new() }
        };
        for handle in many {
            self.hint(RELEASE, handle);
        }
    }

    /// The handles that the next read names.
    pub(crate) fn take_released(&self) -> Vec<u64> {
        std::mem::take(&mut *self.released.lock())
    }

    /// Sends a request that has no answer. Never waits, never fails.
    pub(crate) fn hint(&self, operation: u8, handle: u64) {
        let Some(socket) = self.socket() else { return };
        let json = format!("{{\"handle\":{handle}}}");
        let packet = [&request_header(operation, 0, json.len(), 0)[..], json.as_bytes()].concat();
        // After any other error the node is gone, and what it counted with it.
        if socket.try_send(&packet) == Err(Errno::AGAIN) {
            let mut unsent = self.unsent.lock();
            if unsent.len() == UNSENT_MAX {
                unsent.pop_front();
            }
            unsent.push_back(packet);
        }
    }
}

/// Packets on their way out. What was sent is taken out, so that a second `carry` goes on where a signal interrupted the
/// first.
pub(crate) struct Outgoing<'p> {
    hints: VecDeque<Vec<u8>>,
    request: Option<&'p [u8]>,
}

impl Outgoing<'_> {
    /// Sends them and waits for the next packet. Takes no lock: other threads run Python meanwhile, and may fork.
    pub(crate) fn carry(&mut self, socket: &Socket, inbox: &mut Inbox) -> Result<Arrived, Failure> {
        while let Some(hint) = self.hints.front() {
            socket.send(hint).map_err(Failure::Sending)?;
            self.hints.pop_front();
        }
        if let Some(request) = self.request {
            socket.send(request).map_err(Failure::Sending)?;
            self.request = None;
        }
        socket.receive(inbox).map_err(Failure::Waiting)
    }
}

/// A segment's handle, told to the node when the last that needs the segment is gone.
pub(crate) struct Release {
    pub(crate) handle: u64,
    pub(crate) line: Arc<Line>,
}

impl Drop for Release {
    fn drop(&mut self) {
        self.line.release(self.handle);
    }
}
