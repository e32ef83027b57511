//! A segment's file in the hands of other processes: how it gets there, and whether it is there still.
//!
//! A file that is handed out is opened anew, so that it is a file of its own. The kernel grants a write lease on the
//! node's own file (fcntl(2), "Leases") only while no other file of the same memory is open or mapped: asking for a
//! lease, and giving it back at once, tells whether another process has the memory. No holder is missed: a descriptor
//! on its way through a socket, a mapping whose descriptor was closed and a child's inherited descriptor are all the
//! same file.
//!
//! A lease does not tell of *pages* that a process has without the file: splice(2) puts them into a pipe, sendfile(2)
//! and MSG_ZEROCOPY into a socket, direct input and output pins them. So memory that was handed out once is freed in
//! the end, when the kernel gives those pages to nobody else, and never written again (`segment_pool`).

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals};

/// Opens `file` anew. It never waits: a file on which its holder has a lease is refused (`EAGAIN`).
pub(crate) fn reopen(file: BorrowedFd<'_>, access: OFlags) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, access | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

/// The means to hand a segment's file out and to see who has it.
#[derive(Debug, Default)]
pub(crate) struct HandedOut {
    /// The lock keeps this process from opening the file while it has a lease on it.
    lent: Mutex<Lent>,
}

#[derive(Debug, Default)]
struct Lent {
    /// The file was handed out, or was to be.
    ever: bool,
    /// Open for reading, to ask for leases with; made when the file is first handed out.
    probe: Option<File>,
}

impl HandedOut {
    /// A descriptor of `file`, always the same one, for another process. The file has `seals` before anybody gets it.
    pub(crate) fn open(&self, file: BorrowedFd<'_>, seals: SealFlags, access: OFlags) -> std::io::Result<OwnedFd> {
        let mut lent = self.lent.lock();
        if lent.probe.is_none() {
            lent.ever = true;
            if !fcntl_get_seals(file)?.contains(seals) {
                fcntl_add_seals(file, seals)?;
            }
            let own = File::from(reopen(file, OFlags::RDONLY)?);
            lease::ignore_breaks(&own)?;
            lent.probe = Some(own);
        }
        reopen(file, access)
    }

    /// Whether another process has the file; true if the kernel does not tell.
    pub(crate) fn is_held(&self) -> bool {
        // Never handed out: nobody has it.
        self.lent.lock().probe.as_ref().is_some_and(|probe| !lease::is_granted(probe))
    }

    /// Whether another process has the file, has had it, or may have.
    pub(crate) fn was_ever(&mut self) -> bool {
        self.lent.get_mut().ever
    }
}

/// What rustix has no calls for.
mod lease {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;

    /// fcntl(2), as Linux numbers them.
    const F_SETSIG: libc::c_int = 10;

    fn set(file: &File, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: these commands take an integer and change nothing but the lease and the signal of this file.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// When somebody opens the file during a lease, the kernel sends this process a signal. By default the signal ends
    /// the process; this sets one that the process ignores.
    pub(super) fn ignore_breaks(file: &File) -> io::Result<()> {
        set(file, F_SETSIG, libc::SIGURG)
    }

    /// Whether the kernel grants a write lease; it is given back at once.
    pub(super) fn is_granted(file: &File) -> bool {
        let granted = set(file, libc::F_SETLEASE, libc::c_int::from(libc::F_WRLCK as i16)).is_ok();
        if granted && let Err(error) = set(file, libc::F_SETLEASE, libc::c_int::from(libc::F_UNLCK as i16)) {
            tracing::warn!(%error, "a lease on a segment cannot be given back");
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use memmap2::Mmap;

    use super::*;
    use crate::Segment;

    fn segment() -> Segment {
        Segment::copy_of(&[7; 1 << 17]).unwrap()
    }

    #[test]
    fn the_kernel_shows_when_nobody_else_has_a_segment_open_or_mapped() {
        let segment = segment();
        assert!(!segment.is_held_elsewhere(), "never handed out");
        let descriptor = segment.hand_out().unwrap().unwrap();
        assert!(segment.is_held_elsewhere(), "open");
        let copy = descriptor.try_clone().unwrap();
        // SAFETY: nobody can change or shorten a sealed file.
        let map = unsafe { Mmap::map(&descriptor) }.unwrap();
        drop((descriptor, copy));
        assert!(segment.is_held_elsewhere(), "mapped");
        assert_eq!(&map[..], segment.as_slice());
        drop(map);
        assert!(!segment.is_held_elsewhere());
        let again = segment.hand_out().unwrap().unwrap();
        assert!(segment.is_held_elsewhere());
        drop(again);
        assert!(!segment.is_held_elsewhere());
    }

    #[test]
    fn a_holder_that_opens_it_anew_holds_it_still() {
        let segment = segment();
        let descriptor = segment.hand_out().unwrap().unwrap();
        let anew = reopen(descriptor.as_fd(), OFlags::RDONLY).unwrap();
        drop(descriptor);
        assert!(segment.is_held_elsewhere());
        drop(anew);
        assert!(!segment.is_held_elsewhere());
    }

    #[test]
    fn a_holder_that_opens_it_while_it_is_looked_at_ends_nobody() {
        let segment = segment();
        let descriptor = segment.hand_out().unwrap().unwrap();
        std::thread::scope(|scope| {
            let opens = scope.spawn(|| {
                for _ in 0..2000 {
                    // Refused or not: what counts is that this process lives.
                    let _either = reopen(descriptor.as_fd(), OFlags::RDONLY);
                }
            });
            while !opens.is_finished() {
                assert!(segment.is_held_elsewhere());
            }
        });
    }
}
