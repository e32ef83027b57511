//! The answer to one request, as `nigh.connection.Answer`.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Deserialize;

use crate::line::{Line, Release};
use crate::python::{garbled, of_wire};
use crate::reply::Received;
use crate::segment::Segment;

/// An answer's flag: it is a success, and its body is all the bytes that were asked for.
const IN_PACKET: u16 = 2;
const SUCCESS: std::ops::Range<u64> = 200..300;

/// What an answer's JSON says of its bytes. JSON that is not so goes to Python: an error's, and what serde takes and Python
/// does not (text that is no UTF-8 or is nested too deeply, of fields that nobody reads).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    status: u64,
    handle: Option<u64>,
    offset: Option<u64>,
    length: Option<u64>,
    /// Read to be checked: headers are texts by name.
    #[serde(rename = "headers")]
    _headers: Option<HashMap<String, String>>,
}

#[pyclass(frozen, module = "nigh.nigh_native")]
pub(crate) struct Answer {
    line: Arc<Line>,
    text: Py<PyBytes>,
    /// Taken by the segment: the answer may live longer than the bytes are wanted.
    body: Mutex<Option<Py<PyBytes>>>,
    /// Whoever takes it owns it.
    descriptor: Mutex<Option<OwnedFd>>,
    is_in_packet: bool,
    numbers: Option<Numbers>,
    fields: Decoded,
    headers: Decoded,
}

/// A dictionary that Python makes when it is first asked for. Its lock is not held meanwhile: that code may fork, or run a
/// handler that asks for the same.
#[derive(Default)]
struct Decoded(Mutex<Option<Py<PyDict>>>);

impl Decoded {
    /// The same one each time; of two that were made at once, the first.
    fn get_or<'py>(
        &self,
        py: Python<'py>,
        make: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let known = self.0.lock().as_ref().map(|known| known.clone_ref(py));
        if let Some(known) = known {
            return Ok(known.into_bound(py));
        }
        let made = make()?.cast_into::<PyDict>()?.unbind();
        let first = self.0.lock().get_or_insert_with(|| made.clone_ref(py)).clone_ref(py);
        Ok(first.into_bound(py))
    }
}

#[pymethods]
impl Answer {
    /// A success whose bytes are those of the packet.
    #[getter]
    fn is_in_packet(&self) -> bool {
        self.is_in_packet
    }

    #[getter]
    fn descriptor(&self) -> i32 {
        self.descriptor.lock().as_ref().map_or(-1, |descriptor| descriptor.as_raw_fd())
    }

    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.fields.get_or(py, || of_wire(py, "decode")?.call1((&self.text,)))
    }

    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<u64> {
        match &self.numbers {
            Some(numbers) => Ok(numbers.status),
            None => self.number(py, "status"),
        }
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.headers.get_or(py, || of_wire(py, "headers")?.call1((self.fields(py)?,)))
    }

    /// Closes the descriptor if nobody has taken it.
    fn close(&self) {
        let descriptor = self.descriptor.lock().take();
        drop(descriptor);
    }

    /// Itself, if it is no error.
    fn check(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        let py = slf.py();
        if SUCCESS.contains(&slf.get().status(py)?) {
            return Ok(slf.into_any());
        }
        // It raises the error.
        py.import("nigh.connection")?.getattr("Answer")?.call_method1("check", (slf,))
    }

    /// Its bytes, which take the descriptor.
    fn segment(&self, py: Python<'_>) -> PyResult<Segment> {
        if self.is_in_packet {
            let body = self.body.lock().take();
            return Ok(Segment::of_packet(py, body.unwrap_or_else(|| PyBytes::new(py, b"").unbind())));
        }
        let known = self.numbers.as_ref();
        let length = self.one_of(py, known.and_then(|numbers| numbers.length), "length")?;
        let Some(descriptor) = self.descriptor.lock().take() else {
            return Err(garbled(py, &format!("neither a segment nor the {length} bytes came")));
        };
        let offset = self.one_of(py, known.and_then(|numbers| numbers.offset), "offset")?;
        let handle = self.one_of(py, known.and_then(|numbers| numbers.handle), "handle")?;
        let release = Release { handle, line: Arc::clone(&self.line) };
        Segment::of_descriptor(py, descriptor, offset, length, release)
    }
}

impl Answer {
    pub(crate) fn new(py: Python<'_>, line: Arc<Line>, reply: Received<'_>) -> PyResult<Self> {
        let is_in_packet = reply.flags & IN_PACKET != 0;
        if is_in_packet && reply.descriptor.is_some() {
            return Err(garbled(py, "a descriptor came, and the bytes in the packet"));
        }
        // An array would be taken for the members in their order.
        let text = Some(reply.text.as_bytes()).filter(|text| !is_in_packet && text.starts_with(b"{"));
        let numbers: Option<Numbers> = text.and_then(|text| serde_json::from_slice(text).ok());
        let is_judged = is_in_packet || numbers.is_some();
        let answer = Self {
            line,
            text: reply.text.unbind(),
            body: Mutex::new(Some(reply.body.unbind())),
            descriptor: Mutex::new(reply.descriptor),
            is_in_packet,
            numbers,
            fields: Decoded::default(),
            headers: Decoded::default(),
        };
        if !is_judged {
            answer.number(py, "status")?;
            answer.headers(py)?;
        }
        Ok(answer)
    }

    /// The whole number `name` of the fields, as Python reads it.
    fn number(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        of_wire(py, "number")?.call1((self.fields(py)?, name))?.extract()
    }

    fn one_of(&self, py: Python<'_>, known: Option<u64>, name: &str) -> PyResult<u64> {
        known.map_or_else(|| self.number(py, name), Ok)
    }
}
