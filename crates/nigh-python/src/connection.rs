//! A connection, as `nigh.connection.Connection`: one process's, used by one thread at a time.

use std::ffi::OsString;
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nigh_client::{Address, Inbox, Socket, request_header};
use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use rustix::io::Errno;

use crate::answer::Answer;
use crate::line::{ABANDON, Failure, Line};
use crate::python::{described, garbled, of_wire, raised};
use crate::reply::{Received, received};

const GET: u8 = 2;
const HEAD: u8 = 3;
const ANSWER: u8 = 1;
/// Bucket and key of a request that is packed here; longer ones are packed in Python, which knows the limits.
const NAMES_BYTES_MAX: usize = 4096;

#[pyclass(frozen, weakref, module = "nigh.nigh_native")]
pub(crate) struct Connection {
    line: Arc<Line>,
    /// Locked by the one that asks.
    inbox: Mutex<Inbox>,
    last_id: AtomicU32,
}

#[pymethods]
impl Connection {
    #[new]
    fn new(py: Python<'_>, address: OsString, timeout_s: f64) -> PyResult<Self> {
        let timeout =
            Duration::try_from_secs_f64(timeout_s).map_err(|error| PyValueError::new_err(error.to_string()))?;
        // As setsockopt(2) and Python have it: zero is for ever.
        let timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        // A file's name may be no text.
        let to = address.to_str().map_or_else(|| Address::File(address.clone().into()), Address::parse);
        let socket = loop {
            match py.detach(|| Socket::connect(&to, timeout)) {
                Ok(socket) => break socket,
                Err(Errno::INTR) => py.check_signals()?,
                Err(errno) => {
                    let reason = described(py, errno);
                    let text = format!("the fast path at {to} does not answer: {reason}");
                    return Err(raised(py, "NoServer", &text));
                }
            }
        };
        let inbox = Mutex::new(Inbox::new());
        Ok(Self { line: Arc::new(Line::new(socket)), inbox, last_id: AtomicU32::new(0) })
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.line.pid
    }

    #[getter]
    fn open(&self) -> bool {
        self.line.is_open()
    }

    fn fileno(&self) -> i32 {
        self.line.number()
    }

    fn close(&self) {
        self.line.close();
    }

    fn abandon(&self, handle: u64) {
        self.line.hint(ABANDON, handle);
    }

    /// Sends a packet and waits for the next; without one it only waits. For the handshake: a `nigh.wire.Packet`, and the
    /// descriptor that came with it or -1.
    #[pyo3(signature = (packet=None))]
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        packet: Option<Bound<'py, PyBytes>>,
    ) -> PyResult<(Bound<'py, PyAny>, i32)> {
        let packet = packet.as_ref().map(|packet| packet.as_bytes());
        let Received { kind, flags, id, text, body, descriptor } = self.carried(py, packet, &mut *self.inbox()?)?;
        let packet = of_wire(py, "Packet")?.call1((kind, flags, id, text, body))?;
        Ok((packet, descriptor.map_or(-1, |descriptor| descriptor.into_raw_fd())))
    }

    /// Asks and waits for the answer. After any error of the wait or of the reply the connection is closed.
    #[pyo3(signature = (operation, fields, body=None))]
    fn request<'py>(
        &self,
        py: Python<'py>,
        operation: u8,
        fields: &Bound<'py, PyDict>,
        body: Option<Bound<'py, PyBytes>>,
    ) -> PyResult<Answer> {
        let mut inbox = self.inbox()?;
        let id = self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_read = operation == GET || operation == HEAD;
        let released = if is_read { self.line.take_released() } else { Vec::new() };
        let is_plain = is_read && body.as_ref().is_none_or(|body| body.as_bytes().is_empty());
        let plain = if is_plain { plain_read(operation, id, fields, &released) } else { None };
        let packet = match plain {
            Some(packet) => PyBytes::new(py, &packet),
            None => {
                let body = body.unwrap_or_else(|| PyBytes::new(py, b""));
                let packed = of_wire(py, "pack")?.call1((operation, id, fields, body, released))?;
                packed.cast_into::<PyBytes>()?
            }
        };
        let answer = self.answer(py, id, packet.as_bytes(), &mut inbox);
        // Also where a signal's handler raised: an answer may still come, and would be another request's.
        if answer.is_err() {
            self.line.close();
        }
        answer
    }
}

impl Connection {
    /// For the one thread that may use the connection.
    fn inbox(&self) -> PyResult<MutexGuard<'_, Inbox>> {
        self.inbox.try_lock().ok_or_else(|| PyRuntimeError::new_err("a connection carries one request at a time"))
    }

    fn answer(&self, py: Python<'_>, id: u32, packet: &[u8], inbox: &mut Inbox) -> PyResult<Answer> {
        let reply = self.carried(py, Some(packet), inbox)?;
        if reply.kind != ANSWER {
            return Err(PyErr::from_value(of_wire(py, "fatal")?.call1((reply.text,))?));
        }
        if reply.id != id {
            return Err(garbled(py, &format!("an answer to {}, not to {id}", reply.id)));
        }
        Answer::new(py, Arc::clone(&self.line), reply)
    }

    /// Sends `packet`, if there is one, and waits for the next.
    fn carried<'py>(&self, py: Python<'py>, packet: Option<&[u8]>, inbox: &mut Inbox) -> PyResult<Received<'py>> {
        let mut outgoing = self.line.outgoing(packet);
        let mut arrived = loop {
            // Taken anew after each handler of a signal: that may close the connection, or fork.
            let carried = match self.line.socket() {
                Some(socket) => py.detach(|| outgoing.carry(&socket, inbox)),
                None => Err(Failure::Sending(Errno::BADF)),
            };
            match carried {
                Ok(arrived) => break arrived,
                Err(Failure::Sending(Errno::INTR) | Failure::Waiting(Errno::INTR)) => py.check_signals()?,
                Err(failure) => return Err(broken(py, &failure)),
            }
        };
        if arrived.is_cut {
            let text = "a packet longer than a packet may be, or more descriptors than one may bring";
            return Err(garbled(py, text));
        }
        if arrived.length == 0 {
            return Err(raised(py, "NoServer", "the fast path closed the connection"));
        }
        if arrived.descriptors.len() > 1 {
            return Err(garbled(py, &format!("{} descriptors with one packet", arrived.descriptors.len())));
        }
        let descriptor = arrived.descriptors.pop();
        received(py, inbox.packet(&arrived), descriptor)
    }
}

fn broken(py: Python<'_>, failure: &Failure) -> PyErr {
    match failure {
        Failure::Sending(Errno::AGAIN) => raised(py, "TimedOut", "the fast path takes no requests"),
        Failure::Waiting(Errno::AGAIN) => raised(py, "TimedOut", "the fast path does not answer in time"),
        Failure::Sending(errno) | Failure::Waiting(errno) => {
            raised(py, "NoServer", &format!("the fast path's connection broke: {}", described(py, *errno)))
        }
    }
}

/// The packet of a read that asks for a bucket and a key and nothing more; none if it is another, or unusual.
fn plain_read(operation: u8, id: u32, fields: &Bound<'_, PyDict>, released: &[u64]) -> Option<Vec<u8>> {
    if fields.len() != 2 {
        return None;
    }
    let (bucket, key) = (fields.get_item("bucket").ok()??, fields.get_item("key").ok()??);
    let (bucket, key) = (bucket.cast::<PyString>().ok()?.to_str().ok()?, key.cast::<PyString>().ok()?.to_str().ok()?);
    if bucket.len() + key.len() > NAMES_BYTES_MAX {
        return None;
    }
    let mut json = Vec::with_capacity(64 + bucket.len() + key.len());
    json.extend_from_slice(b"{\"bucket\":");
    serde_json::to_writer(&mut json, bucket).ok()?;
    json.extend_from_slice(b",\"key\":");
    serde_json::to_writer(&mut json, key).ok()?;
    if !released.is_empty() {
        json.extend_from_slice(b",\"released\":");
        serde_json::to_writer(&mut json, released).ok()?;
    }
    json.push(b'}');
    Some([&request_header(operation, id, json.len(), 0)[..], &json[..]].concat())
}
