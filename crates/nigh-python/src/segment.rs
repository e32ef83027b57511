//! The bytes of one answer, as `nigh.segment.Segment`: in the packet, or in a sealed segment of the node's.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::line::Release;
use crate::python::{garbled, os_error};

/// A sealed segment that nobody has mapped.
struct Open {
    descriptor: OwnedFd,
    release: Arc<Release>,
}

/// A mapped one. Dropped in this order: the mapping ends before the release is told.
struct Mapped {
    map: Mmap,
    _release: Arc<Release>,
}

#[derive(Clone)]
enum Held {
    Packet(Arc<Py<PyBytes>>),
    Open(Arc<Open>),
    Mapped(Arc<Mapped>),
    Closed,
}

/// So many bytes that do not change. Its lock is held for no copy, and for nothing that may run Python code.
#[pyclass(frozen, module = "nigh.nigh_native")]
pub(crate) struct Segment {
    length: usize,
    offset: u64,
    held: Mutex<Held>,
}

#[pymethods]
impl Segment {
    #[getter]
    fn length(&self) -> usize {
        self.length
    }

    /// Lets the bytes go. Views that were given out stay good.
    fn close(&self) {
        let held = std::mem::replace(&mut *self.held.lock(), Held::Closed);
        drop(held);
    }

    /// All of it, without a copy, read-only. OSError if it cannot be mapped.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        match self.mapped() {
            Ok(Held::Packet(bytes)) => PyMemoryView::from(bytes.bind(py).as_any()),
            Ok(Held::Mapped(mapped)) => PyMemoryView::from(Bound::new(py, Mapping { mapped })?.as_any()),
            Ok(Held::Open(_) | Held::Closed) => Err(let_go()),
            Err(errno) => Err(os_error(py, errno)),
        }
    }

    /// A copy of the bytes from `begin` up to `end`, both within it.
    fn read<'py>(&self, py: Python<'py>, begin: usize, end: usize) -> PyResult<Bound<'py, PyAny>> {
        if begin > end || end > self.length {
            return Err(PyValueError::new_err(format!("{begin} to {end} of {} bytes", self.length)));
        }
        if end - begin < self.length {
            // Who reads in pieces reads many: one mapping is cheaper than a call for each. Without it a call does.
            let _ = self.mapped();
        }
        let held = self.held.lock().clone();
        match held {
            Held::Packet(bytes) => {
                let bytes = bytes.bind(py);
                if end - begin == self.length {
                    return Ok(bytes.clone().into_any());
                }
                bytes.as_any().get_item(PySlice::new(py, begin as isize, end as isize, 1))
            }
            Held::Mapped(mapped) => filled(py, end - begin, |place| {
                // SAFETY: `begin` and `end` were checked against the mapping's length; `place` is new memory of the length
                // between them, and overlaps nothing.
                unsafe {
                    let source = mapped.map.as_ptr().add(begin);
                    std::ptr::copy_nonoverlapping(source, place.as_mut_ptr().cast(), place.len());
                }
                Ok(())
            }),
            Held::Open(open) => filled(py, end - begin, |place| read_at(&open, self.offset + begin as u64, place)),
            Held::Closed => Err(let_go()),
        }
    }
}

impl Segment {
    pub(crate) fn of_packet(py: Python<'_>, bytes: Py<PyBytes>) -> Self {
        let length = bytes.bind(py).as_bytes().len();
        Self { length, offset: 0, held: Mutex::new(Held::Packet(Arc::new(bytes))) }
    }

    /// Refuses a descriptor that is not sealed, or shorter than announced: a file that could shrink would end the process by
    /// SIGBUS.
    pub(crate) fn of_descriptor(
        py: Python<'_>,
        descriptor: OwnedFd,
        offset: u64,
        length: u64,
        release: Release,
    ) -> PyResult<Self> {
        let seals = rustix::fs::fcntl_get_seals(&descriptor).unwrap_or(SealFlags::empty());
        let against_writing = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
        if !(seals.contains(SealFlags::SHRINK) && seals.intersects(against_writing)) {
            return Err(garbled(py, "a descriptor came that is no sealed segment"));
        }
        let size = rustix::fs::fstat(&descriptor).map_err(|errno| os_error(py, errno))?.st_size as u64;
        let end = u128::from(offset) + u128::from(length);
        if u128::from(size) < end {
            return Err(garbled(py, &format!("a segment of {size} bytes came where {end} were announced")));
        }
        let open = Open { descriptor, release: Arc::new(release) };
        Ok(Self { length: length as usize, offset, held: Mutex::new(Held::Open(Arc::new(open))) })
    }

    /// What is held, mapped if it can be.
    fn mapped(&self) -> Result<Held, Errno> {
        let mut held = self.held.lock();
        if let Held::Open(open) = &*held {
            // SAFETY: `of_descriptor` has seen that the file is sealed and as long as what is mapped.
            let map = unsafe { MmapOptions::new().offset(self.offset).len(self.length).map(&open.descriptor) };
            let map = map.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
            let mapped = Mapped { map, _release: Arc::clone(&open.release) };
            *held = Held::Mapped(Arc::new(mapped));
        }
        Ok(held.clone())
    }
}

/// What the memoryviews of a mapped segment are made of.
#[pyclass(frozen, module = "nigh.nigh_native")]
struct Mapping {
    mapped: Arc<Mapped>,
}

#[pymethods]
impl Mapping {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: std::ffi::c_int) -> PyResult<()> {
        let map = &slf.get().mapped.map;
        let (start, length) = (map.as_ptr().cast_mut().cast(), map.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is Python's to fill, which keeps this object while it has the view; the object keeps the mapping.
        // Nobody writes through it: it is said to be read-only.
        let code = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if code == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

fn let_go() -> PyErr {
    PyValueError::new_err("the bytes were let go")
}

/// Why bytes could not be read.
enum ReadFailure {
    Refused(Errno),
    /// So many bytes are missing.
    Short(usize),
}

/// New bytes, which `fill` sets while other threads run Python.
fn filled(
    py: Python<'_>,
    length: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<(), ReadFailure> + Send,
) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: without a source Python makes bytes that are not set; the reference is this function's.
    let bytes = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), length as ffi::Py_ssize_t))
    }?;
    // SAFETY: they are so long, and nobody else has seen them. Without bytes it is an object that others have, and nothing
    // is written.
    let place = unsafe {
        std::slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>(), length)
    };
    match py.detach(|| fill(place)) {
        Ok(()) => Ok(bytes),
        Err(ReadFailure::Refused(errno)) => Err(os_error(py, errno)),
        Err(ReadFailure::Short(missing)) => Err(garbled(py, &format!("a segment ended {missing} bytes early"))),
    }
}

/// Fills `place` from `offset` of the file on.
fn read_at(open: &Open, offset: u64, place: &mut [MaybeUninit<u8>]) -> Result<(), ReadFailure> {
    let mut done = 0;
    while done < place.len() {
        match rustix::io::pread(&open.descriptor, &mut place[done..], offset + done as u64) {
            Ok(([], _)) => return Err(ReadFailure::Short(place.len() - done)),
            Ok((read, _)) => done += read.len(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(ReadFailure::Refused(errno)),
        }
    }
    Ok(())
}
