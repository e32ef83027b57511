//! The native half of the Python client (`runtimes/python/nigh`): a module for the stable ABI of Python 3.11 and newer.
//!
//! Native is what every call does: `Connection.request` (pack, send, wait, take the reply apart) and the bytes of an answer
//! (`Segment`: a copy as `bytes`, or a view of the node's memory by the buffer protocol). Python is what decides: the pool,
//! forks, drafts, errors, `Client`, the hook. So there is one `Client`, whose tests run with and without this module.
//!
//! `nigh.native` loads it if it can; else `nigh.connection.Connection` and `nigh.segment.Segment` do the same in Python. They
//! are the reference: whatever is not as usual (a reply that is no packet, JSON with a member of the wrong type, a request of
//! other fields than bucket and key) goes to their functions, which raise what they raise.
//!
//! The interpreter's lock is released during each wait and each copy of a segment. A signal interrupts a wait, and its handler runs. A
//! connection belongs to the process that opened it: in a child of fork(2) nothing is sent on it. `Line` is what a
//! connection shares with the segments that came by it, which may live longer.
//!
//! A copy is one pread(2) into the new `bytes`: a mapping made for one copy costs more than it saves. Free-threaded Pythons
//! before 3.15 have no stable ABI and use the Python client.

mod answer;
mod connection;
mod line;
mod python;
mod reply;
mod segment;

use pyo3::prelude::*;

/// What `nigh.native` expects. It changes with what the Python modules call here.
const API: u32 = 1;

/// The module.
#[pymodule]
fn nigh_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("API", API)?;
    module.add_class::<connection::Connection>()
}
