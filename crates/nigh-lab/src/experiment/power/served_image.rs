//! The image of a disk as the one file of a FUSE file system, served by a thread of this process over a write cache that
//! power cuts empty.
//!
//! It speaks as much of the kernel's protocol (linux/fuse.h, version 7.31) as a loop device over one file needs: all
//! integers are in the machine's byte order, a request is a header of 40 bytes and its arguments, an answer one of 16 and
//! its own. A loop device with direct I/O turns the file system's flushes into FSYNC, so that what its journal believes to
//! be durable is what the cache was told to keep.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::write_cache::{Syncs, WriteCache};
use crate::LabError;
use crate::instrument::error::Tried;

/// The device of FUSE.
pub(super) const DEVICE: &str = "/dev/fuse";
/// The file's name.
const NAME: &str = "disk";
const ROOT: u64 = 1;
const FILE: u64 = 2;
const REQUEST_HEADER: usize = 40;
/// Bytes of one write at most, in pages of 4 KiB.
const WRITE_MAX: u32 = 1 << 20;
/// How long the kernel may remember names and attributes: for ever.
const VALID_S: u64 = 1 << 30;
/// How long the thread may take to end after the unmount.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// What this server wants of what the kernel offers: `ASYNC_READ`, `BIG_WRITES`, `ASYNC_DIO`, `MAX_PAGES`.
const WANTED: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;
/// `FOPEN_DIRECT_IO`: the kernel keeps no pages of the file.
const DIRECT_IO: u32 = 1;

#[derive(Debug)]
struct Served {
    cache: WriteCache,
    powered: bool,
    /// The next sync of something is not answered while there is power.
    holds_sync: bool,
    /// Such a sync has come.
    held: bool,
    /// Counts power cuts. A handle that was opened before the last one gets errors for ever: nothing that a killed
    /// kernel's loop device still wants to write reaches the disk.
    life: u64,
}

impl Served {
    /// An error if the handle in `body` is of before a cut, or there is no power.
    fn check_handle(&self, body: &[u8]) -> Result<(), Errno> {
        if self.powered && u64_at(body, 0)? == self.life { Ok(()) } else { Err(Errno::IO) }
    }
}

/// A mounted image; unmounted when dropped.
#[derive(Debug)]
pub(super) struct ServedImage {
    folder: PathBuf,
    served: Arc<Mutex<Served>>,
    thread: Option<JoinHandle<()>>,
}

impl ServedImage {
    /// Mounts the file system of `cache` at `folder`, without power.
    pub(super) fn mount(folder: &Path, cache: WriteCache) -> Result<Self, LabError> {
        std::fs::create_dir_all(folder).at(folder)?;
        let device = File::options().read(true).write(true).open(DEVICE).at(DEVICE)?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options).at(folder)?;
        mount("nigh-power", folder, "fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
            .at(folder)?;
        let served = Arc::new(Mutex::new(Served { cache, powered: false, holds_sync: false, held: false, life: 0 }));
        let mut image = Self { folder: folder.to_owned(), served: Arc::clone(&served), thread: None };
        let work = move || serve(&device, &served);
        image.thread = Some(std::thread::Builder::new().name("disk".to_owned()).spawn(work).at(folder)?);
        Ok(image)
    }

    /// The image's file.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    pub(super) fn power_on(&self) {
        let mut served = self.served.lock();
        (served.powered, served.holds_sync, served.held) = (true, false, false);
    }

    /// Leaves the next sync of something without an answer, until the power is off: so that a cut meets it.
    pub(super) fn hold_next_sync(&self) {
        self.served.lock().holds_sync = true;
    }

    /// Whether a sync waits in vain.
    pub(super) fn holds_a_sync(&self) -> bool {
        self.served.lock().held
    }

    /// From now on every read, write and sync fails.
    pub(super) fn power_off(&self) {
        let mut served = self.served.lock();
        (served.powered, served.life) = (false, served.life + 1);
    }

    /// Forgets what the cut left in the cache.
    pub(super) fn lose_power(&self) -> io::Result<()> {
        self.served.lock().cache.lose_power()
    }

    pub(super) fn set_syncs(&self, syncs: Syncs) -> io::Result<()> {
        self.served.lock().cache.set_syncs(syncs)
    }

    /// Syncs since the start, and sectors that cuts have taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        let served = self.served.lock();
        (served.cache.synced, served.cache.forgotten)
    }
}

impl Drop for ServedImage {
    fn drop(&mut self) {
        self.power_off();
        // It fails if somebody has unmounted it; the kernel ends the connection with its last user.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
        let begun = Instant::now();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && begun.elapsed() < ENDS_WITHIN {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve(device: &File, served: &Mutex<Served>) {
    let mut buffer = vec![0; WRITE_MAX as usize + 8192];
    let mut device = device;
    loop {
        match device.read(&mut buffer) {
            Ok(0) => return,
            Ok(many) => {
                hold(&buffer[..many], served);
                if let Some(answer) = answer(&buffer[..many], served) {
                    // The kernel does not wait any more for what it refuses here.
                    let _ = device.write_all(&answer);
                }
            }
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                // NODEV: it is unmounted.
                _ => return,
            },
        }
    }
}

/// Returns when the power is off, if this is a sync that a cut is to meet.
fn hold(request: &[u8], served: &Mutex<Served>) {
    let mut now = served.lock();
    if u32_at(request, 4) != Ok(opcode::FSYNC) || !now.holds_sync || !now.cache.has_unsynced() {
        return;
    }
    now.held = true;
    while now.powered {
        MutexGuard::unlocked(&mut now, || std::thread::sleep(Duration::from_millis(1)));
    }
}

/// The answer to a request, header and all; none if the kernel wants none.
fn answer(request: &[u8], served: &Mutex<Served>) -> Option<Vec<u8>> {
    let (opcode, unique) = (u32_at(request, 4).ok()?, u64_at(request, 8).ok()?);
    if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
        return None;
    }
    let (error, body) = match arguments(opcode, request, served) {
        Ok(body) => (0, body),
        Err(errno) => (-errno.raw_os_error(), Vec::new()),
    };
    let mut answer = Vec::with_capacity(16 + body.len());
    answer.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
    answer.extend_from_slice(&error.to_ne_bytes());
    answer.extend_from_slice(&unique.to_ne_bytes());
    answer.extend_from_slice(&body);
    Some(answer)
}

fn arguments(opcode: u32, request: &[u8], served: &Mutex<Served>) -> Result<Vec<u8>, Errno> {
    let node = u64_at(request, 16)?;
    let body = request.get(REQUEST_HEADER..).ok_or(Errno::INVAL)?;
    let mut served = served.lock();
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    match opcode {
        opcode::INIT => init(body),
        opcode::LOOKUP if node == ROOT && body == [NAME.as_bytes(), b"\0"].concat() => {
            Ok(Out::new().u64(FILE).u64(0).u64(VALID_S).u64(VALID_S).u64(0).attributes(FILE, served.cache.bytes()))
        }
        opcode::LOOKUP => Err(Errno::NOENT),
        opcode::GETATTR | opcode::SETATTR => Ok(Out::new().u64(VALID_S).u64(0).attributes(node, served.cache.bytes())),
        opcode::OPEN if node == FILE && served.powered => Ok(Out::new().u64(served.life).u32(DIRECT_IO).u32(0).bytes),
        opcode::OPEN => Err(Errno::IO),
        opcode::READ => {
            served.check_handle(body)?;
            let size = u32_at(body, 16)?.min(WRITE_MAX) as usize;
            let offset = u64_at(body, 8)?;
            let left = served.cache.bytes().saturating_sub(offset);
            let mut data = vec![0; size.min(left as usize)];
            served.cache.read(offset, &mut data).map_err(failed)?;
            Ok(data)
        }
        opcode::WRITE => {
            served.check_handle(body)?;
            let (offset, size) = (u64_at(body, 8)?, u32_at(body, 16)?);
            let data = body.get(40..40 + size as usize).ok_or(Errno::INVAL)?;
            served.cache.write(offset, data).map_err(failed)?;
            Ok(Out::new().u32(size).u32(0).bytes)
        }
        opcode::FSYNC => {
            served.check_handle(body)?;
            served.cache.sync().map_err(failed)?;
            Ok(Vec::new())
        }
        opcode::STATFS => {
            let blocks = served.cache.bytes() / 512;
            let counts = Out::new().u64(blocks).u64(0).u64(0).u64(2).u64(0);
            Ok(counts.u32(512).u32(255).u32(512).u32(0).zeros(24).bytes)
        }
        opcode::RELEASE | opcode::FLUSH | opcode::DESTROY => Ok(Vec::new()),
        // Also for FALLOCATE: the loop device then writes zeros itself, and discards nothing.
        _ => Err(Errno::NOSYS),
    }
}

fn init(body: &[u8]) -> Result<Vec<u8>, Errno> {
    let (major, minor, offered) = (u32_at(body, 0)?, u32_at(body, 4)?, u32_at(body, 12)?);
    if major < 7 {
        return Err(Errno::PROTO);
    }
    let flags = offered & WANTED;
    let versions = Out::new().u32(7).u32(minor.min(31)).u32(0).u32(flags);
    let limits = versions.u16(16).u16(12).u32(WRITE_MAX).u32(1).u16((WRITE_MAX / 4096) as u16).u16(0);
    Ok(limits.zeros(32).bytes)
}

/// An answer's arguments, field by field.
struct Out {
    bytes: Vec<u8>,
}

impl Out {
    const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    fn u16(mut self, value: u16) -> Self {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn zeros(mut self, many: usize) -> Self {
        self.bytes.resize(self.bytes.len() + many, 0);
        self
    }

    /// `struct fuse_attr`, which ends every answer that has one.
    fn attributes(self, node: u64, size: u64) -> Vec<u8> {
        let (mode, links, size) = if node == FILE { (0o100_600, 1, size) } else { (0o040_700, 2, 0) };
        let times = self.u64(node).u64(size).u64(size / 512).zeros(36);
        times.u32(mode).u32(links).u32(0).u32(0).u32(0).u32(4096).u32(0).bytes
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Errno> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(Errno::INVAL)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Errno> {
    let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_ne_bytes).ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Mutex<Served> {
        let medium = tempfile::tempfile().unwrap();
        medium.set_len(1 << 20).unwrap();
        Mutex::new(Served {
            cache: WriteCache::new(medium, 1).unwrap(),
            powered: true,
            holds_sync: false,
            held: false,
            life: 0,
        })
    }

    fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let header = Out::new().u32((REQUEST_HEADER + body.len()) as u32).u32(opcode).u64(77).u64(node).zeros(16);
        [header.bytes, body.to_vec()].concat()
    }

    fn asked(served: &Mutex<Served>, opcode: u32, node: u64, body: &[u8]) -> (i32, Vec<u8>) {
        let answer = answer(&request(opcode, node, body), served).unwrap();
        assert_eq!((u32_at(&answer, 0).unwrap() as usize, u64_at(&answer, 8).unwrap()), (answer.len(), 77));
        (u32_at(&answer, 4).unwrap().cast_signed(), answer[16..].to_vec())
    }

    #[test]
    fn answers_are_as_long_as_the_kernel_expects() {
        let served = served();
        let offered = Out::new().u32(7).u32(45).u32(0).u32(u32::MAX).bytes;
        let (error, init) = asked(&served, opcode::INIT, 0, &offered);
        assert_eq!((error, init.len(), u32_at(&init, 12).unwrap()), (0, 64, WANTED));
        assert_eq!(asked(&served, opcode::LOOKUP, ROOT, b"disk\0").1.len(), 128);
        assert_eq!(asked(&served, opcode::LOOKUP, ROOT, b"other\0").0, -2);
        assert_eq!(asked(&served, opcode::GETATTR, FILE, &[0; 16]).1.len(), 104);
        assert_eq!(asked(&served, opcode::OPEN, FILE, &[0; 8]).1.len(), 16);
        assert_eq!(asked(&served, opcode::STATFS, ROOT, &[]).1.len(), 80);
        assert_eq!(asked(&served, 43, FILE, &[0; 32]).0, -38);
        assert!(answer(&request(opcode::FORGET, FILE, &[0; 8]), &served).is_none());
    }

    #[test]
    fn a_handle_from_before_a_power_cut_reads_and_writes_nothing() {
        let served = served();
        let write = |handle: u64| Out::new().u64(handle).u64(512).u32(4).zeros(20).u32(0x0101_0101).bytes;
        let read = |handle: u64| Out::new().u64(handle).u64(512).u32(4).zeros(20).bytes;
        assert_eq!(asked(&served, opcode::WRITE, FILE, &write(0)), (0, Out::new().u32(4).u32(0).bytes));
        assert_eq!(asked(&served, opcode::READ, FILE, &read(0)), (0, vec![1; 4]));
        served.lock().life = 1;
        for (opcode, body) in [(opcode::WRITE, write(0)), (opcode::READ, read(0)), (opcode::FSYNC, read(0))] {
            assert_eq!(asked(&served, opcode, FILE, &body).0, -5);
        }
        assert_eq!(asked(&served, opcode::READ, FILE, &read(1)), (0, vec![1; 4]));
    }
}
