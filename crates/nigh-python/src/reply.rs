//! What came in a packet, before it is known whose answer it is.

use std::os::fd::OwnedFd;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::of_wire;

/// The highest kind of a reply.
const FATAL: u8 = 2;

/// A reply, taken out of its packet.
pub(crate) struct Received<'py> {
    pub(crate) kind: u8,
    pub(crate) flags: u16,
    pub(crate) id: u32,
    pub(crate) text: Bound<'py, PyBytes>,
    pub(crate) body: Bound<'py, PyBytes>,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// The reply in `packet`.
pub(crate) fn received<'py>(py: Python<'py>, packet: &[u8], descriptor: Option<OwnedFd>) -> PyResult<Received<'py>> {
    if let Some(reply) = nigh_client::Reply::read(packet)
        && reply.kind <= FATAL
    {
        let (text, body) = (PyBytes::new(py, reply.json), PyBytes::new(py, reply.body));
        return Ok(Received { kind: reply.kind, flags: reply.flags, id: reply.id, text, body, descriptor });
    }
    // It says what is wrong with it.
    let unpacked = of_wire(py, "unpack")?.call1((PyBytes::new(py, packet),))?;
    let (kind, flags, id, text, body): (u8, u16, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>) = unpacked.extract()?;
    Ok(Received { kind, flags, id, text, body, descriptor })
}
