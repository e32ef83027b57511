//! A connection's socket and what goes out on it: shared with the segments that came in on it, which may live longer.

use std::collections::VecDeque;
use std::sync::Arc;

use nigh_client::{Arrived, Inbox, Socket, request_header};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

const RELEASE: u8 = 7;
pub(crate) const ABANDON: u8 = 8;
/// Released segments that wait to be named in the next read; one more, and all are told at once (`nigh/connection.py`).
const RELEASED_MAX: usize = 4;
/// Hints that did not fit the socket's buffer; beyond it they are dropped, and the node finds out by itself.
const UNSENT_MAX: usize = 1024;

/// Why nothing came.
pub(crate) enum Failure {
    /// The request did not go out.
    Sending(Errno),
    /// It did, and no answer came.
    Waiting(Errno),
}

/// No lock of it is held while Python code may run.
pub(crate) struct Line {
    /// The process that opened it.
    pub(crate) pid: u32,
    /// None once it is closed.
    socket: RwLock<Option<Arc<Socket>>>,
    released: Mutex<Vec<u64>>,
    unsent: Mutex<VecDeque<Vec<u8>>>,
}

impl Line {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            pid: std::process::id(),
            socket: RwLock::new(Some(Arc::new(socket))),
            released: Mutex::new(Vec::new()),
            unsent: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.socket.read().is_some()
    }

    /// Closes it. A thread that waits on it holds the socket until its wait is over.
    pub(crate) fn close(&self) {
        let socket = self.socket.write().take();
        drop(socket);
    }

    pub(crate) fn socket(&self) -> Result<Arc<Socket>, Errno> {
        self.socket.read().clone().ok_or(Errno::BADF)
    }

    /// Sends `request`, after what waits, and waits for the next packet. What was sent is taken out of `request`, so that a
    /// second call goes on where a signal interrupted the first.
    pub(crate) fn carry(&self, request: &mut Option<&[u8]>, inbox: &mut Inbox) -> Result<Arrived, Failure> {
        let socket = self.socket().map_err(Failure::Sending)?;
        if let Some(packet) = *request {
            self.send_hints(&socket).map_err(Failure::Sending)?;
            socket.send(packet).map_err(Failure::Sending)?;
            *request = None;
        }
        socket.receive(inbox).map_err(Failure::Waiting)
    }

    fn send_hints(&self, socket: &Socket) -> Result<(), Errno> {
        loop {
            let hint = self.unsent.lock().pop_front();
            let Some(hint) = hint else { return Ok(()) };
            if let Err(errno) = socket.send(&hint) {
                self.unsent.lock().push_front(hint);
                return Err(errno);
            }
        }
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
        if std::process::id() != self.pid {
            return;
        }
        let Ok(socket) = self.socket() else { return };
        let json = format!("{{\"handle\":{handle}}}");
        let packet = [&request_header(operation, 0, json.len(), 0)[..], json.as_bytes()].concat();
        // After any other error the node is gone, and what it counted with it.
        if socket.try_send(&packet) == Err(Errno::AGAIN) {
            let mut unsent = self.unsent.lock();
            if unsent.len() < UNSENT_MAX {
                unsent.push_back(packet);
            }
        }
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
