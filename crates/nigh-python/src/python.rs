//! What is raised, and what the Python modules are asked for.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::io::Errno;

/// An error of `nigh.errors`, by its name.
pub(crate) fn raised(py: Python<'_>, name: &str, text: &str) -> PyErr {
    match py.import("nigh.errors").and_then(|errors| errors.getattr(name)?.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(failed) => failed,
    }
}

/// A `ProtocolError`.
pub(crate) fn garbled(py: Python<'_>, text: &str) -> PyErr {
    raised(py, "ProtocolError", text)
}

/// The `OSError` that Python raises for `errno`.
pub(crate) fn os_error(py: Python<'_>, errno: Errno) -> PyErr {
    let number = errno.raw_os_error();
    match py.import("os").and_then(|os| os.getattr("strerror")?.call1((number,))?.extract::<String>()) {
        Ok(text) => PyOSError::new_err((number, text)),
        Err(failed) => failed,
    }
}

/// What Python says of `errno`.
pub(crate) fn described(py: Python<'_>, errno: Errno) -> String {
    os_error(py, errno).value(py).to_string()
}

/// A function or class of the module of packets, `nigh.wire`.
pub(crate) fn of_wire<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("nigh.wire")?.getattr(name)
}
